"""`check rows`: every row against the task model of an environment, field by field, in one pass and flat memory."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import ValidationError

from gymnast.data.row import BadRow, Row, read_row
from gymnast.errors import UserError
from gymnast.kit.task_server import TaskServer
from gymnast.runtime.cell import placed
from gymnast.runtime.loader import is_server_class, load_entry
from gymnast.store.lines import numbered_lines
from gymnast.types.task import AGENT_REF, PARAMS, SKILLS_REF, agent_name_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from gymnast.config import Config, Instance
    from gymnast.kit.attempt import Task
    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.types.json import JsonObject

SHOWN: Final = 5
_MODULES: Final = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")
_MOST_FIELDS: Final = 500
_OURS: Final = frozenset({PARAMS, AGENT_REF, SKILLS_REF, "response", "reward"})
_LABELS: Final = frozenset({"id", "uuid", "dataset", "source", "license", "metadata"})
"""What rows say of themselves and nobody expects a verifier to read."""


@dataclass(slots=True)
class Tally:
    """How many rows have something, and the first of them."""

    rows: int = 0
    first: list[JsonObject] = field(default_factory=list)

    def add(self, line: int, shown: str | None = None) -> None:
        self.rows += 1
        if len(self.first) < SHOWN:
            self.first.append({"line": line} if shown is None else {"line": line, "value": shown})


@dataclass(slots=True)
class RowReport:
    """How the rows of a file fit the task of an environment."""

    environment: str
    declared: dict[str, JsonObject]
    """The fields of the task: type, required, in how many rows they are."""
    rows: int = 0
    bad_rows: int = 0
    missing: dict[str, Tally] = field(default_factory=dict)
    wrong: dict[str, Tally] = field(default_factory=dict)
    """By place and what was expected there."""
    extra: dict[str, Tally] = field(default_factory=dict)
    """Fields that the environment never reads; no fault by themselves."""
    other: dict[str, Tally] = field(default_factory=dict)
    """Lines that are no rows, create params that are refused, agents that are not there."""
    not_counted: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        return not self.bad_rows

    def as_json(self) -> JsonObject:
        found = {
            name: {what: {"rows": tally.rows, "first": tally.first} for what, tally in tallies.items()}
            for name, tallies in self._all().items()
        }
        return {
            "ok": self.ok,
            "environment": self.environment,
            "rows": self.rows,
            "bad_rows": self.bad_rows,
            "declared": self.declared,
            **found,
            "hints": self.hints(),
        }

    def hints(self) -> list[str]:
        """Fields that are missing although a field that looks like them is there."""
        near = {name: get_close_matches(name, self.extra, 1) for name in self.missing}
        return [f"'{name}' is missing; does '{found[0]}' hold it?" for name, found in near.items() if found]

    def note(self, kind: str, what: str, line: int, shown: str | None = None) -> None:
        tallies = self._all()[kind]
        if what not in tallies and len(tallies) >= _MOST_FIELDS:  # keys of free mappings must not fill the memory
            self.not_counted[kind] += 1
            return
        tallies.setdefault(what, Tally()).add(line, shown)

    def _all(self) -> dict[str, dict[str, Tally]]:
        return {"missing": self.missing, "wrong": self.wrong, "extra": self.extra, "other": self.other}


def check_rows(
    path: Path,
    task: type[Task],
    environment: str,
    agents: Collection[str],
    template: PromptTemplate | None = None,
) -> RowReport:
    """Hold every row of a file, its prompt rendered, against a task model. `agents` are those of the environment."""
    report = RowReport(environment, _declared(task))
    for number, line in numbered_lines(path):
        report.rows += 1
        try:
            row = read_row(line, template)
        except BadRow as error:
            report.note("other", f"{error.kind}: {_bounded(str(error))}", number)
            report.bad_rows += 1
            continue
        report.bad_rows += not _fits(row, number, task, agents, report)
    return report


def task_model(instance: Instance) -> type[Task]:
    """The task model that an environment declares. Raises UserError where nobody can know it from outside."""
    unknown = UserError(
        f"the fields that '{instance.name}' reads are not known",
        where=str(instance.directory),
        next="only environments of our kit declare them; try a row: gymnast check env NAME, or collect with --limit 1",
    )
    if instance.url is not None or instance.directory is None or placed(instance).runs_in == "venv":
        raise unknown
    entry = load_entry(instance)
    if not is_server_class(entry) or not issubclass(entry, TaskServer):
        raise unknown
    return entry.task_type


def agents_of(config: Config, instance: Instance) -> frozenset[str]:
    """The agents that work in an environment."""
    known = (config.instances[name] for name in config.agents)
    return frozenset(agent.name for agent in known if any(ref.name == instance.name for ref in agent.refs.values()))


def _fits(row: Row, number: int, task: type[Task], agents: Collection[str], report: RowReport) -> bool:
    data, good = row.data, True
    name = agent_name_of(data)
    if name is not None and agents and name not in agents:
        report.note("other", f"agent: '{name}' is no agent of {report.environment}", number)
        good = False
    for declared, facts in report.declared.items():
        facts["present"] += declared in data
    for extra in data.keys() - report.declared.keys() - _OURS - _LABELS:
        if not extra.startswith("_ng_"):
            report.note("extra", extra, number, _shown(data[extra]))
    try:
        task.model_validate(data)
    except ValidationError as error:
        for found in error.errors(include_url=False):
            place = _place(found["loc"])
            if found["type"] == "missing":
                report.note("missing", place, number)
            else:
                report.note("wrong", f"{place}: {_bounded(found['msg'])}", number, _shown(found["input"]))
        good = False
    return good


def _declared(task: type[Task]) -> dict[str, JsonObject]:
    return {
        info.alias or name: {"type": _type_name(info.annotation), "required": info.is_required(), "present": 0}
        for name, info in task.model_fields.items()
    }


def _type_name(annotation: Any) -> str:
    plain = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    return annotation.__name__ if plain else _MODULES.sub("", str(annotation))


def _place(loc: tuple[int | str, ...]) -> str:
    """`choices[*].text`: the same for every index."""
    text = ""
    for step in loc:
        text += "[*]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".") or "the row"


def _shown(value: Any) -> str:
    return _bounded(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode())


def _bounded(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "…"
