"""What a job needs to run its components anywhere: the companion as one file, and a file of orders for each of them.

The companion is a zip of the very modules that are tested here; python3 runs it as it is. Its bytes depend on nothing
but those modules, so that two submissions of one run write the same file.
"""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.cluster.components.companion.order import SCHEMA_VERSION, places_in
from gymnast.errors import ConfigError, DataError, Problem, suggest
from gymnast.store.replacing import write_replacing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from gymnast.cluster.components.spec import Component

COMPANION: Final = "companion.pyz"
_JOB: Final = "job.json"
_PACKED: Final = (
    "__init__.py",
    "cluster/__init__.py",
    "cluster/components/__init__.py",
    *(
        f"cluster/components/companion/{name}.py"
        for name in (
            "__init__",
            "board",
            "leasing",
            "main",
            "order",
            "process",
            "readiness",
            "stopping",
            "supervise",
            "surroundings",
        )
    ),
    "runtime/__init__.py",
    "runtime/guard.py",
    "runtime/listening.py",
)
_MAIN: Final = b"import sys\n\nfrom gymnast.cluster.components.companion.main import main\n\nsys.exit(main())\n"
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)


class OrderedComponent(msgspec.Struct, frozen=True):
    """A component, as far as whoever starts its companions has to know it."""

    name: str
    tasks: int
    is_main: bool
    stop_s: float


class JobOrder(msgspec.Struct, frozen=True, kw_only=True):
    """`job.json`: the components of a job in the order of their needs."""

    schema_version: int = SCHEMA_VERSION
    components: tuple[OrderedComponent, ...]


def read_job(folder: Path) -> JobOrder:
    """The job that a folder of orders describes."""
    try:
        return msgspec.json.decode((folder / _JOB).read_bytes(), type=JobOrder)
    except (OSError, msgspec.MsgspecError) as error:
        raise DataError(f"the job's orders cannot be read: {error}", where=str(folder)) from error


def packed_companion() -> bytes:
    """The companion as a file that python3 runs."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo("__main__.py", _LONG_AGO), _MAIN)
        for name in _PACKED:
            source = files("gymnast").joinpath(name).read_bytes()
            packed.writestr(zipfile.ZipInfo(f"gymnast/{name}", _LONG_AGO), source, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def write_orders(folder: Path, components: Sequence[Component], *, bind: str | None = None) -> list[Component]:
    """Write the companion and `NAME.json` of each component into a folder; the components in the order of their needs.

    `python3 FOLDER/companion.pyz --spec FOLDER/NAME.json --folder JOB [--task N]` then runs a task; JOB is a folder of
    that one job, and N need not be given under Slurm. Without `bind`, components of a job on one node listen on
    loopback, others on all addresses.
    """
    ordered = in_order(components)
    is_one_node = len({one.het_group for one in ordered}) == 1 and all(one.nodes == 1 for one in ordered)
    where = bind or ("127.0.0.1" if is_one_node else "0.0.0.0")  # noqa: S104 - other nodes have to reach it
    folder.mkdir(parents=True, exist_ok=True)
    write_replacing(folder / COMPANION, packed_companion())
    for one in ordered:
        order = order_of(one, ordered, bind=where)
        write_replacing(folder / f"{one.name}.json", orjson.dumps(order, option=orjson.OPT_INDENT_2))
    listed = tuple(OrderedComponent(one.name, one.tasks, one.is_main, one.stop_s) for one in ordered)
    write_replacing(folder / _JOB, msgspec.json.encode(JobOrder(components=listed)))
    return ordered


def companion_command(folder: str, component: str, *, python: str = "python3") -> tuple[str, ...]:
    """The command that runs a component from a folder of orders; `--folder JOB` has to follow."""
    return (python, f"{folder}/{COMPANION}", "--spec", f"{folder}/{component}.json")


def order_of(component: Component, all_of_them: Iterable[Component], *, bind: str) -> dict[str, Any]:
    """What the component's companion is told. Pure."""
    by_name = {one.name: one for one in all_of_them}
    needed = [by_name[name] for name in component.needs]
    ready = component.ready
    waiting_s = sum(one.ready.deadline_s for one in needed if one.ready is not None)
    return {
        "schema_version": SCHEMA_VERSION,
        "name": component.name,
        "command": component.command,
        "rest_command": component.rest_command,
        "environment": dict(component.environment),
        "workdir": component.workdir,
        "tasks": component.tasks,
        "tasks_per_node": component.tasks_per_node,
        "gpus_per_task": component.gpus_per_task,
        "needs": {one.name: one.addresses for one in needed},
        "needs_deadline_s": waiting_s + 300.0,  # what they may take, and the time between the starts of a job's parts
        "ready": None
        if ready is None
        else {
            "path": ready.path,
            "deadline_s": ready.deadline_s,
            "first_interval_s": ready.first_interval_s,
            "longest_interval_s": ready.longest_interval_s,
        },
        "restarts": component.restarts,
        "is_main": component.is_main,
        "stop_s": component.stop_s,
        "bind": bind,
    }


def in_order(components: Sequence[Component]) -> list[Component]:
    """The components such that each comes after those it needs. Raises ConfigError if that cannot be."""
    problems = list(_problems(components))
    if problems:
        raise ConfigError(problems)
    by_name = {one.name: one for one in components}
    try:
        return [by_name[name] for name in TopologicalSorter({one.name: one.needs for one in components}).static_order()]
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise ConfigError([Problem(f"components need each other in a circle: {circle}")]) from error


def _problems(components: Sequence[Component]) -> Iterable[Problem]:
    names = [one.name for one in components]
    for name, count in Counter(names).items():
        if count > 1:
            yield Problem(f"two components are called '{name}'")
        if not name.replace("-", "").replace("_", "").isalnum():
            yield Problem(f"a component cannot be called '{name}'", next="use letters, digits, - and _")
    if sum(one.is_main for one in components) != 1:
        yield Problem("a job has exactly one main component, whose end is the job's end")
    for one in components:
        yield from _unmet(one, {other.name: other for other in components})


def _unmet(one: Component, others: Mapping[str, Component]) -> Iterable[Problem]:
    asked = [name for _, name in places_in([*one.command, *one.rest_command, *one.environment.values()])]
    for name in dict.fromkeys([*one.needs, *asked]):
        if name not in others:
            yield Problem(f"it needs '{name}', which the job does not have", where=one.name, next=suggest(name, others))
        elif name not in one.needs:
            yield Problem(f"it asks for the address of '{name}' but does not need it", where=one.name)
        elif others[name].ready is None:
            yield Problem(f"it needs '{name}', of which nobody can know when it is ready", where=one.name)
