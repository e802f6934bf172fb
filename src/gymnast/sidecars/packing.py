"""What a job needs to run its components anywhere: the sidecar as one file, and a spec file for each component.

The sidecar is a zip of its modules that python3 runs directly. Its bytes depend only on those modules, so that two
submissions of one run write the same file.
"""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from dataclasses import asdict
from graphlib import CycleError, TopologicalSorter
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.errors import ConfigError, DataError, Problem, suggest
from gymnast.sidecars.sidecar.spec import SCHEMA_VERSION, find_placeholders
from gymnast.store.atomic import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from gymnast.sidecars.component import Component

SIDECAR_FILE: Final = "sidecar.pyz"
"""The sidecar in a folder of job files."""
_JOB: Final = "job.json"
_PACKED: Final = (
    "__init__.py",
    "sidecars/__init__.py",
    *(
        f"sidecars/sidecar/{name}.py"
        for name in (
            "__init__",
            "host_environment",
            "job_registry",
            "main",
            "port_lease",
            "process",
            "readiness",
            "spec",
            "stop_signals",
            "supervisor",
        )
    ),
    "runtime/__init__.py",
    "runtime/guard.py",
    "runtime/listening_ports.py",
)
_MAIN: Final = b"import sys\n\nfrom gymnast.sidecars.sidecar.main import main\n\nsys.exit(main())\n"
_COPIED_FIELDS: Final = (
    *("name", "command", "rest_command", "workdir", "tasks", "tasks_per_node", "gpus_per_task"),
    *("restarts", "is_main", "stop_s"),
)
"""Of a component that its sidecar gets unchanged."""
_FIXED_TIME: Final = (1980, 1, 1, 0, 0, 0)


class JobComponent(msgspec.Struct, frozen=True):
    """What the starter of its sidecars has to know of a component."""

    name: str
    tasks: int
    is_main: bool
    stop_s: float


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`job.json`: the components of a job, sorted by their needs."""

    schema_version: int = SCHEMA_VERSION
    components: tuple[JobComponent, ...]


def read_job_spec(folder: Path) -> JobSpec:
    try:
        return msgspec.json.decode((folder / _JOB).read_bytes(), type=JobSpec)
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(f"cannot read the job's files: {error}", where=str(folder)) from error


def pack_sidecar() -> bytes:
    """The sidecar as a file that python3 runs."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo("__main__.py", _FIXED_TIME), _MAIN)
        for name in _PACKED:
            source = files("gymnast").joinpath(name).read_bytes()
            packed.writestr(zipfile.ZipInfo(f"gymnast/{name}", _FIXED_TIME), source, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def write_job_files(folder: Path, components: Sequence[Component]) -> list[Component]:
    """Write the sidecar and `NAME.json` of each component into a folder. Returns the components sorted by their needs.

    `python3 FOLDER/sidecar.pyz --spec FOLDER/NAME.json --folder JOB [--task N]` then runs a task. JOB is a folder of
    that one job; N is optional under Slurm. A job on one node listens on loopback, others on all addresses.
    """
    ordered = sort_by_needs(components)
    is_one_node = len({item.het_group for item in ordered}) == 1 and all(item.nodes == 1 for item in ordered)
    address = "127.0.0.1" if is_one_node else "0.0.0.0"  # noqa: S104 - other nodes have to reach it
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / SIDECAR_FILE, pack_sidecar())
    for component in ordered:
        spec = build_sidecar_spec(component, ordered, bind=address)
        atomic_write(folder / f"{component.name}.json", orjson.dumps(spec, option=orjson.OPT_INDENT_2))
    summaries = tuple(JobComponent(item.name, item.tasks, item.is_main, item.stop_s) for item in ordered)
    atomic_write(folder / _JOB, msgspec.json.encode(JobSpec(components=summaries)))
    return ordered


def sidecar_command(folder: str, component: str, *, python: str = "python3") -> tuple[str, ...]:
    """The command that runs a component from a folder of specs; `--folder JOB` must follow."""
    return (python, f"{folder}/{SIDECAR_FILE}", "--spec", f"{folder}/{component}.json")


def build_sidecar_spec(component: Component, components: Iterable[Component], *, bind: str) -> dict[str, Any]:
    """The spec of a component's sidecar. Pure."""
    by_name = {item.name: item for item in components}
    needed = [by_name[name] for name in component.needs]
    startup_s = sum(item.ready.deadline_s for item in needed if item.ready is not None)
    return {
        "schema_version": SCHEMA_VERSION,
        **{name: getattr(component, name) for name in _COPIED_FIELDS},
        "environment": dict(component.environment),
        "needs": {item.name: item.addresses for item in needed},
        "needs_deadline_s": startup_s + 300.0,  # their startup, and the delay between the parts of a job
        "ready": None if component.ready is None else asdict(component.ready),
        "bind": bind,
    }


def sort_by_needs(components: Sequence[Component]) -> list[Component]:
    """Sort components so that each comes after those it needs. Raises ConfigError if that is impossible."""
    problems = list(_find_problems(components))
    if problems:
        raise ConfigError(problems)
    by_name = {item.name: item for item in components}
    try:
        order = TopologicalSorter({item.name: item.needs for item in components}).static_order()
        return [by_name[name] for name in order]
    except CycleError as error:
        cycle = " → ".join(error.args[1])
        raise ConfigError([Problem(f"components need each other in a cycle: {cycle}")]) from error


def _find_problems(components: Sequence[Component]) -> Iterable[Problem]:
    names = [item.name for item in components]
    for name, count in Counter(names).items():
        if count > 1:
            yield Problem(f"duplicate component name '{name}'")
        if not name.replace("-", "").replace("_", "").isalnum():
            yield Problem(f"invalid component name '{name}'", next="use letters, digits, - and _")
    if sum(item.is_main for item in components) != 1:
        yield Problem("a job needs exactly one main component, which ends the job")
    for component in components:
        yield from _find_unmet_needs(component, {other.name: other for other in components})


def _find_unmet_needs(component: Component, others: Mapping[str, Component]) -> Iterable[Problem]:
    where, texts = component.name, [*component.command, *component.rest_command, *component.environment.values()]
    mentioned = [name for _, name in find_placeholders(texts)]
    for name in dict.fromkeys([*component.needs, *mentioned]):
        if name not in others:
            yield Problem(f"it needs '{name}', which the job does not have", where=where, next=suggest(name, others))
        elif name not in component.needs:
            yield Problem(f"it uses the address of '{name}' without needing it", where=where)
        elif others[name].ready is None:
            yield Problem(f"it needs '{name}', which has no ready check", where=where)
