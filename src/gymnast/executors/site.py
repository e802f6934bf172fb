"""The settings of one cluster, from a YAML file per site: where jobs go, what they may use, containers by name.

An unknown name (a key, a container) is an error with suggestions, never taken literally.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from gymnast.errors import ConfigError, NotFoundError, Problem, suggest
from gymnast.executors.site_yaml import read_plain_yaml, translate_keys
from gymnast.sidecars.component import Container, Mount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Runtime = Literal["none", "pyxis", "apptainer"]
ExecutorName = Literal["local", "slurm", "ray"]
_SUFFIXES: Final = (".yaml", ".yml")
_RELEASE_S: Final = 30.0


class Resources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job requests from its scheduler. None leaves it to the scheduler."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None
    """As Slurm writes it: `04:00:00`, `1-12:00:00`, or minutes."""
    nodes: int | None = None
    exclusive: bool = False
    gres: str | None = None
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    memory: str | None = None
    """Per node, as Slurm writes it: `64G`."""
    comment: str | None = None
    mail_user: str | None = None
    mail_type: str | None = None
    extra_sbatch: tuple[str, ...] = ()
    """Further sbatch options, one word each: `--constraint=h100`."""

    def with_overrides(self, **overrides: Any) -> Resources:
        """A copy in which the given values (neither None nor False) replace the site's."""
        extra = (*self.extra_sbatch, *overrides.pop("extra_sbatch", ()))
        changes = {name: value for name, value in overrides.items() if value not in (None, False)}
        return msgspec.structs.replace(self, **changes, extra_sbatch=extra)


class SiteContainer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    image: str
    mounts: tuple[Mount, ...] = ()
    workdir: str | None = None


class Site(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cluster, as its file describes it."""

    name: str = "here"
    where: str = ""
    """The file."""
    executor: ExecutorName = "slurm"
    host: str | None = None
    """Where scheduler commands run, over the user's own ssh; None: on this machine."""
    ssh_options: tuple[str, ...] = ()
    ray_address: str | None = None
    resources: Resources = Resources()
    merge: Resources = Resources()
    """For the job that merges and profiles; overrides `resources`."""
    worker: Resources | None = None
    """The worker's part of a heterogeneous job with policy servers; None: both share one part."""
    runtime: Runtime = "none"
    container: str | None = None
    """The container of the workers, by name."""
    containers: dict[str, SiteContainer] = {}
    mounts: tuple[Mount, ...] = ()
    """For every container."""
    environment: dict[str, str] = {}
    python: str | None = None
    """The Python with Gymnast where jobs run; None: the one that submits, or `python3` in a container."""
    setup: tuple[str, ...] = ()
    """Shell lines at the start of every job (`module load …`)."""
    srun_options: tuple[str, ...] = ()
    job_dir: str | None = None
    """Where scripts, logs and code of jobs go; None: next to the run."""
    drain_s: int = 120
    """How long before its time limit a job is asked to finish."""
    requeue: int = 0
    """How often a job that reached its time limit requeues itself."""

    @property
    def grace_s(self) -> float:
        """How much of `drain_s` rollouts in flight may take; the rest is for handing back."""
        return max(5.0, self.drain_s - min(self.drain_s / 4, _RELEASE_S))

    def get_container(self, name: str | None) -> Container | None:
        """The container of that name with the site's mounts. Raises NotFoundError for an unknown name."""
        if name is None:
            return None
        container = self.containers.get(name)
        if container is None:
            raise NotFoundError(
                f"there is no container '{name}' at {self.name}",
                where=self.where or None,
                next=suggest(name, self.containers) or "add it under `containers:` in the cluster file",
            )
        if self.runtime == "none":
            raise ConfigError(
                [Problem("containers need `runtime: pyxis` or `runtime: apptainer`", where=self.where or self.name)]
            )
        return Container(name, container.image, (*self.mounts, *container.mounts), container.workdir)


LOCAL_SITE: Final = Site(executor="local")
"""Without a cluster file: processes on this machine."""


def find_site(name: str, folders: Iterable[Path]) -> Site:
    """Read the site of that name from the first folder that has it, or from the file with that path."""
    if "/" in name or name.endswith(_SUFFIXES):
        path = Path(name)
        if not path.is_file():
            raise NotFoundError(f"there is no cluster file {name}", where=str(path.absolute()))
        return read_site(path)
    searched = list(folders)
    known = {path.stem: path for folder in reversed(searched) for path in _files(folder)}
    if name not in known:
        raise NotFoundError(
            f"there is no cluster '{name}'",
            where=", ".join(map(str, searched)),
            next=suggest(name, known)
            or "write a file for it there, or pass a path to --cluster (docs/how-to/slurm.md)",
        )
    return read_site(known[name])


def read_site(path: Path) -> Site:
    """Read a cluster file. Raises ConfigError that lists every wrong key."""
    values, lines = read_plain_yaml(path)
    return parse_site(values, name=path.stem, where=str(path), lines=lines)


def parse_site(
    values: Mapping[str, Any], *, name: str, where: str = "", lines: Mapping[tuple[str, ...], int] | None = None
) -> Site:
    """Build the site from plain values. Pure."""
    values = translate_keys(values)
    problems = list(_unknown_keys(values, where or name, lines or {}))
    if problems:
        raise ConfigError(problems)
    own = {key: value for key, value in values.items() if key not in Resources.__struct_fields__}
    own["resources"] = {key: value for key, value in values.items() if key in Resources.__struct_fields__}
    try:
        own = _expand_short_forms(own)
        site = msgspec.convert({**own, "name": name, "where": where}, Site, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError([Problem(str(error).replace("`$.resources.", "`$."), where=where or name)]) from error
    if site.container is not None:
        site.get_container(site.container)
    return site


def parse_mount(text: str) -> Mount:
    """Parse `/source:/target[:ro]`, or `/same` for a folder under the same name."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source.startswith("/") or mode not in {"", "ro", "rw"} or (target and not target.startswith("/")):
        raise ValueError(f"a mount is /source:/target or /source:/target:ro, got '{text}'")
    return Mount(source, target or source, read_only=mode == "ro")


def _expand_short_forms(own: dict[str, Any]) -> dict[str, Any]:
    """Expand a container that is only an image, mounts as text, and options in one string."""
    values = dict(own)
    for key in ("ssh_options", "srun_options"):
        if isinstance(values.get(key), str):
            values[key] = shlex.split(values[key])
    for section in (values["resources"], values.get("merge"), values.get("worker")):
        if isinstance(section, dict) and isinstance(section.get("extra_sbatch"), str):
            section["extra_sbatch"] = shlex.split(section["extra_sbatch"])
    if isinstance(values.get("setup"), str):
        values["setup"] = values["setup"].splitlines()
    if "mounts" in values:
        values["mounts"] = _expand_mounts(values["mounts"])
    if isinstance(values.get("containers"), dict):
        values["containers"] = {name: _expand_container(value) for name, value in values["containers"].items()}
    return values


def _expand_container(value: Any) -> Any:
    if isinstance(value, str):
        return {"image": value}
    if isinstance(value, dict) and "mounts" in value:
        return {**value, "mounts": _expand_mounts(value["mounts"])}
    return value


def _expand_mounts(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [asdict(parse_mount(mount)) if isinstance(mount, str) else mount for mount in value]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES) if folder.is_dir() else []


_RESOURCE_KEYS: Final = frozenset(Resources.__struct_fields__)
_KEYS: Final = (frozenset(Site.__struct_fields__) - {"name", "where", "resources"}) | _RESOURCE_KEYS


def _unknown_keys(values: Mapping[str, Any], where: str, lines: Mapping[tuple[str, ...], int]) -> Iterable[Problem]:
    yield from _unknown_in(values, _KEYS, (), where, lines)
    for name in ("merge", "worker"):
        section = values.get(name)
        if isinstance(section, dict):
            yield from _unknown_in(section, _RESOURCE_KEYS, (name,), where, lines)
    containers = values.get("containers")
    for name, value in containers.items() if isinstance(containers, dict) else ():
        if isinstance(value, dict):
            known = frozenset(SiteContainer.__struct_fields__)
            yield from _unknown_in(value, known, ("containers", name), where, lines)


def _unknown_in(
    values: Mapping[str, Any],
    known: frozenset[str],
    parents: Sequence[str],
    where: str,
    lines: Mapping[tuple[str, ...], int],
) -> Iterable[Problem]:
    for key in values:
        if key not in known:
            line = lines.get((*parents, key))
            location = f"{where} line {line}" if line else where
            yield Problem(f"unknown key '{'.'.join((*parents, key))}'", where=location, next=suggest(key, known))
