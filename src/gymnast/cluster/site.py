"""One cluster's settings, from a YAML file per site: where jobs go, what they may use, containers by name.

A name that the file does not have (a key, a container) is an error with suggestions, never taken literally.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from gymnast.cluster.components.spec import Container, Mount
from gymnast.cluster.site_aliases import in_our_words
from gymnast.cluster.site_source import read_plain_yaml
from gymnast.errors import ConfigError, NotFoundError, Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Runtime = Literal["none", "pyxis", "apptainer"]
ExecutorName = Literal["local", "slurm", "ray"]
_SUFFIXES: Final = (".yaml", ".yml")
_HANDING_BACK_S: Final = 30.0


class Resources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job asks its scheduler for. None leaves it to the scheduler."""

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
    """Further options of sbatch, each one word: `--constraint=h100`."""

    def laid_over(self, **given: Any) -> Resources:
        """The same with what was given (neither None nor empty) in place of what the site says."""
        extra = (*self.extra_sbatch, *given.pop("extra_sbatch", ()))
        said = {name: value for name, value in given.items() if value not in (None, False)}
        return msgspec.structs.replace(self, **said, extra_sbatch=extra)


class SiteContainer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A container that the site knows by name."""

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
    """Scheduler commands run there, over the user's own ssh; None: here."""
    ssh_options: tuple[str, ...] = ()
    ray_address: str | None = None
    resources: Resources = Resources()
    merge: Resources = Resources()
    """For the job that merges and profiles, laid over `resources`."""
    worker: Resources | None = None
    """The worker's own part of a heterogeneous job, beside policy servers; None: both share one part."""
    runtime: Runtime = "none"
    container: str | None = None
    """The container of the workers, by name."""
    containers: dict[str, SiteContainer] = {}
    mounts: tuple[Mount, ...] = ()
    """For every container."""
    environment: dict[str, str] = {}
    python: str | None = None
    """The Python that has Gymnast, where jobs run; None: the one that submits, or `python3` in a container."""
    setup: tuple[str, ...] = ()
    """Lines of shell at the start of every job (`module load …`)."""
    srun_options: tuple[str, ...] = ()
    job_dir: str | None = None
    """Where scripts, logs and code of jobs go; None: beside the run."""
    drain_s: int = 120
    """How long before the end of its time a job is told to finish what it has."""
    requeue: int = 0
    """How often a job whose time is up puts itself into the queue again."""

    @property
    def grace_s(self) -> float:
        """How much of that time rollouts in flight may take; the rest is for handing back."""
        return max(5.0, self.drain_s - min(self.drain_s / 4, _HANDING_BACK_S))

    def container_named(self, name: str | None) -> Container | None:
        """The container of that name with the site's mounts. Raises NotFoundError for a name the site does not have."""
        if name is None:
            return None
        found = self.containers.get(name)
        if found is None:
            raise NotFoundError(
                f"there is no container '{name}' at {self.name}",
                where=self.where or None,
                next=suggest(name, self.containers) or "name it under `containers:` in the cluster's file",
            )
        if self.runtime == "none":
            raise ConfigError(
                [Problem("containers need `runtime: pyxis` or `runtime: apptainer`", where=self.where or self.name)]
            )
        return Container(name, found.image, (*self.mounts, *found.mounts), found.workdir)


HERE: Final = Site(executor="local")
"""No file: processes on this machine."""


def find_site(asked: str, folders: Iterable[Path]) -> Site:
    """The site of that name in the first folder that has it, or in the file that was named."""
    if "/" in asked or asked.endswith(_SUFFIXES):
        path = Path(asked)
        if not path.is_file():
            raise NotFoundError(f"there is no cluster file {asked}", where=str(path.absolute()))
        return read_site(path)
    searched = list(folders)
    known = {path.stem: path for folder in reversed(searched) for path in _files(folder)}
    if asked not in known:
        raise NotFoundError(
            f"there is no cluster '{asked}'",
            where=", ".join(map(str, searched)),
            next=suggest(asked, known) or "write a file for it there, or give --cluster a file (docs/how-to/slurm.md)",
        )
    return read_site(known[asked])


def read_site(path: Path) -> Site:
    """The site that a file describes. Raises ConfigError with every wrong key."""
    found, lines = read_plain_yaml(path)
    return parse_site(found, name=path.stem, where=str(path), lines=lines)


def parse_site(
    values: Mapping[str, Any], *, name: str, where: str = "", lines: Mapping[tuple[str, ...], int] | None = None
) -> Site:
    """The site from plain values. Pure."""
    values = in_our_words(values)
    problems = list(_unknown_keys(values, where or name, lines or {}))
    if problems:
        raise ConfigError(problems)
    own = {key: value for key, value in values.items() if key not in Resources.__struct_fields__}
    own["resources"] = {key: value for key, value in values.items() if key in Resources.__struct_fields__}
    try:
        own = _spelt_out(own)
        site = msgspec.convert({**own, "name": name, "where": where}, Site, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError([Problem(str(error).replace("`$.resources.", "`$."), where=where or name)]) from error
    if site.container is not None:
        site.container_named(site.container)
    return site


def parse_mount(text: str) -> Mount:
    """`/source:/target[:ro]`, or `/same` for a folder under the same name."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source.startswith("/") or mode not in {"", "ro", "rw"} or (target and not target.startswith("/")):
        raise ValueError(f"a mount is /source:/target or /source:/target:ro, not '{text}'")
    return Mount(source, target or source, read_only=mode == "ro")


def _spelt_out(own: dict[str, Any]) -> dict[str, Any]:
    """Short forms written out: a container that is only an image, mounts as text, options as one text."""
    found = dict(own)
    for key in ("ssh_options", "srun_options"):
        if isinstance(found.get(key), str):
            found[key] = shlex.split(found[key])
    for section in (found["resources"], found.get("merge"), found.get("worker")):
        if isinstance(section, dict) and isinstance(section.get("extra_sbatch"), str):
            section["extra_sbatch"] = shlex.split(section["extra_sbatch"])
    if isinstance(found.get("setup"), str):
        found["setup"] = found["setup"].splitlines()
    if "mounts" in found:
        found["mounts"] = _mounts(found["mounts"])
    if isinstance(found.get("containers"), dict):
        found["containers"] = {name: _container(said) for name, said in found["containers"].items()}
    return found


def _container(said: Any) -> Any:
    if isinstance(said, str):
        return {"image": said}
    if isinstance(said, dict) and "mounts" in said:
        return {**said, "mounts": _mounts(said["mounts"])}
    return said


def _mounts(said: Any) -> Any:
    if not isinstance(said, list):
        return said
    return [asdict(parse_mount(each)) if isinstance(each, str) else each for each in said]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES) if folder.is_dir() else []


_RESOURCE_KEYS: Final = frozenset(Resources.__struct_fields__)
_KEYS: Final = (frozenset(Site.__struct_fields__) - {"name", "where", "resources"}) | _RESOURCE_KEYS


def _unknown_keys(values: Mapping[str, Any], where: str, lines: Mapping[tuple[str, ...], int]) -> Iterable[Problem]:
    yield from _strangers(values, _KEYS, (), where, lines)
    for name in ("merge", "worker"):
        section = values.get(name)
        if isinstance(section, dict):
            yield from _strangers(section, _RESOURCE_KEYS, (name,), where, lines)
    containers = values.get("containers")
    for name, said in containers.items() if isinstance(containers, dict) else ():
        if isinstance(said, dict):
            known = frozenset(SiteContainer.__struct_fields__)
            yield from _strangers(said, known, ("containers", name), where, lines)


def _strangers(
    values: Mapping[str, Any],
    known: frozenset[str],
    above: Sequence[str],
    where: str,
    lines: Mapping[tuple[str, ...], int],
) -> Iterable[Problem]:
    for key in values:
        if key not in known:
            line = lines.get((*above, key))
            place = f"{where} line {line}" if line else where
            yield Problem(f"unknown key '{'.'.join((*above, key))}'", where=place, next=suggest(key, known))
