"""`check rows`: validates every row against an environment's task model, in one pass and constant memory."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import ValidationError

from gymnast.checks.tally import Tally
from gymnast.data.row import BadRow, Row, preview, read_row, truncate
from gymnast.errors import UserError
from gymnast.rollouts.row_fit import find_task_model, suggest_maps
from gymnast.store.row_files import read_lines
from gymnast.types.task import AGENT_REF, PARAMS, SKILLS_REF, TASK_SOURCE, agent_name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from gymnast.config import Instance
    from gymnast.kit.attempt import Task
    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.rollouts.row_map import RowMap
    from gymnast.types.json import JsonObject

_MODULES: Final = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")
_MAX_FIELDS: Final = 500
_MAX_TEXT: Final = 80
_MAX_ERROR: Final = 400  # what to do about it is at the end
_MAX_PROMPT: Final = 2000
_MAX_TOOLS: Final = 5
_ANSWER: Final = re.compile(r"^expected_|answer$|^(?:ground_truth|target|solution|reference|label|gold|sql)$")
"""Names of fields that hold the right answer."""
_OWN_FIELDS: Final = frozenset({PARAMS, AGENT_REF, TASK_SOURCE, SKILLS_REF, "response", "reward"})
_LABELS: Final = frozenset({"id", "uuid", "dataset", "source", "license", "metadata"})
"""Descriptive fields that no verifier is expected to read."""


@dataclass(frozen=True, slots=True)
class FirstRow:
    """The first readable row, as the model will see it."""

    line: int
    params: JsonObject
    environment_tools: tuple[str, ...]

    @property
    def tools(self) -> list[str]:
        """The names of the tools that are offered: the row's, or else the environment's."""
        if "tools" not in self.params:
            return list(self.environment_tools)
        return [str(tool.get("name") or tool.get("type")) for tool in self.params["tools"] or ()]

    def as_json(self) -> JsonObject:
        return {"line": self.line, "input": self.params["input"], "tools": self.tools}

    def lines(self) -> Iterator[str]:
        yield f"the model sees (line {self.line}):"
        items = self.params["input"]
        for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
            content = item.get("content", item)
            text = content if isinstance(content, str) else preview(content, _MAX_PROMPT)
            first, *rest = truncate(text, _MAX_PROMPT).splitlines() or [""]
            yield f"  {item.get('role') or item.get('type')}: {first}"
            yield from (f"    {line}" for line in rest)
        yield f"  tools: {', '.join(self.tools) or 'none'}"


@dataclass(slots=True)
class RowsResult:
    """How the rows of a file match an environment's task model."""

    environment: str
    declared: dict[str, JsonObject]
    """The fields of the task: type, whether required, number of rows that have it."""
    rows: int = 0
    bad_rows: int = 0
    missing: dict[str, Tally] = field(default_factory=dict)
    wrong: dict[str, Tally] = field(default_factory=dict)
    """By path and expectation."""
    extra: dict[str, Tally] = field(default_factory=dict)
    """Fields that the environment never reads; not an error."""
    unscorable: dict[str, Tally] = field(default_factory=dict)
    """Valid rows to which no answer can be right."""
    tools: dict[str, Tally] = field(default_factory=dict)
    """Tools that rows offer and the environment does not have; not an error: the agent may have them."""
    other: dict[str, Tally] = field(default_factory=dict)
    """Malformed lines, invalid create params, unknown agents."""
    not_counted: Counter[str] = field(default_factory=Counter)
    first: FirstRow | None = None

    environment_tools: tuple[str, ...] = ()
    tool_rows: int = 0
    """Rows with which the model is offered a tool."""

    @property
    def ok(self) -> bool:
        return not self.bad_rows and not self.lacks_tools

    @property
    def lacks_tools(self) -> bool:
        """True if the environment has tools and no row offers any."""
        return bool(self.rows and self.environment_tools and not self.tool_rows)

    def as_json(self) -> JsonObject:
        tallies = {
            kind: {what: tally.as_json() for what, tally in tallies.items()}
            for kind, tallies in self._by_kind().items()
        }
        return {
            "ok": self.ok,
            "environment": self.environment,
            "rows": self.rows,
            "bad_rows": self.bad_rows,
            "tool_rows": self.tool_rows,
            "lacks_tools": self.lacks_tools,
            "declared": self.declared,
            **tallies,
            "hints": self.hints(),
            "first_row": self.first.as_json() if self.first is not None else None,
        }

    def lines(self) -> Iterator[str]:
        yield f"{self.environment} reads:"
        for name, facts in self.declared.items():
            need = "required" if facts["required"] else "optional"
            yield f"  {name}: {facts['type']} ({need}; in {facts['present']} of {self.rows} rows)"
        kinds = {
            "missing": self.missing,
            "wrong": self.wrong,
            "unscorable": self.unscorable,
            "other": self.other,
            "never read": self.extra,
            "unknown tool": self.tools,
        }
        for kind, tallies in kinds.items():
            for what, tally in sorted(tallies.items(), key=lambda entry: -entry[1].rows):
                example = f", e.g. {tally.first[0]['value']}" if "value" in tally.first[0] else ""
                numbers = ", ".join(str(row["line"]) for row in tally.first)
                yield f"{kind}: {what} ({tally.rows} rows; lines {numbers}{example})"
        for hint in self.hints():
            yield f"hint: {hint}"
        if self.first is not None:
            yield from self.first.lines()
        if self.lacks_tools:
            names = ", ".join(self.environment_tools[:_MAX_TOOLS])
            yield f"no tools: {self.environment} has tools ({names}), and no row offers any"
        fit = 0 if self.lacks_tools else self.rows - self.bad_rows
        yield f"{fit} of {self.rows} rows fit {self.environment}"

    def hints(self) -> list[str]:
        """Missing fields that another field probably holds."""
        texts = [name for name, facts in self.declared.items() if facts["type"] == "str"]
        maps = suggest_maps(self.missing, {name: _example(tally) for name, tally in self.extra.items()}, texts)
        hints = [f"'{name}' is missing; map it: {text}" for name, text in maps.items()]
        unread = [
            name
            for name, facts in self.declared.items()
            if self.rows and not facts["required"] and not facts["present"] and _ANSWER.search(name)
        ]
        return hints + [f"no row has '{name}': is there another way to tell a right answer?" for name in unread]

    def count(self, kind: str, what: str, line: int, value: str | None = None) -> None:
        tallies = self._by_kind()[kind]
        if what not in tallies and len(tallies) >= _MAX_FIELDS:  # keys of free-form mappings must not fill the memory
            self.not_counted[kind] += 1
            return
        tally = tallies.setdefault(what, Tally())
        tally.rows += 1
        tally.add_example({"line": line} if value is None else {"line": line, "value": value})

    def _by_kind(self) -> dict[str, dict[str, Tally]]:
        return {
            "missing": self.missing,
            "wrong": self.wrong,
            "extra": self.extra,
            "unscorable": self.unscorable,
            "unknown_tools": self.tools,
            "other": self.other,
        }


def check_rows(
    path: Path,
    task: type[Task],
    environment: str,
    agents: Collection[str],
    template: PromptTemplate | None = None,
    row_map: RowMap | None = None,
    tools: Collection[str] = (),
    *,
    offers_tools: bool = True,
) -> RowsResult:
    """Validate every row, mapped and with its prompt rendered, against a task model.

    `agents` are those of the environment, `tools` the names of its tools, which they offer with rows that do not
    declare any (`offers_tools`) or not.
    """
    result = RowsResult(environment, _declared_fields(task), environment_tools=tuple(tools))
    for number, line in read_lines(path):
        result.rows += 1
        try:
            row = read_row(line, template, row_map)
        except BadRow as error:
            result.count("other", f"{error.kind}: {truncate(str(error), _MAX_ERROR)}", number)
            result.bad_rows += 1
            continue
        result.bad_rows += not _row_fits(row, number, task, agents, result)
        _count_tools(row, number, result, offers_tools=offers_tools)
        if result.first is None:
            result.first = FirstRow(number, row.params, tuple(tools))
    return result


def task_model(instance: Instance) -> type[Task]:
    """The task model that an environment declares. Raises UserError if it does not declare one."""
    unknown = UserError(
        f"'{instance.name}' does not declare the fields that it reads",
        where=str(instance.directory),
        next="only environments built with the kit do; use `gymnast check env NAME`, or collect with --limit 1",
    )
    model = find_task_model(instance)
    if model is None:
        raise unknown
    return model


def _row_fits(row: Row, number: int, task: type[Task], agents: Collection[str], result: RowsResult) -> bool:
    data, fits = row.data, True
    agent = agent_name_of(data)
    if agent is not None and agents and agent not in agents:
        result.count("other", f"agent: '{agent}' is not an agent of {result.environment}", number)
        fits = False
    for name, facts in result.declared.items():
        facts["present"] += name in data
    for name in sorted(data.keys() - result.declared.keys() - _OWN_FIELDS - _LABELS):
        if not name.startswith("_ng_"):
            result.count("extra", name, number, preview(data[name], _MAX_TEXT))
    try:
        valid = task.model_validate(data)
        for reason in filter(None, (valid.unscorable_reason(row.params), *_blank_answers(data, result))):
            result.count("unscorable", truncate(reason, _MAX_ERROR), number)
            fits = False
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            path = _path(problem["loc"])
            if problem["type"] == "missing":
                result.count("missing", path, number)
            else:
                what = f"{path}: {truncate(problem['msg'], _MAX_TEXT)}"
                result.count("wrong", what, number, preview(problem["input"], _MAX_TEXT))
        fits = False
    return fits


def _blank_answers(data: JsonObject, result: RowsResult) -> Iterator[str]:
    """Required answers that are blank."""
    for name, facts in result.declared.items():
        value = data.get(name)
        if facts["required"] and _ANSWER.search(name) and isinstance(value, str) and not value.strip():
            yield f"'{name}' is blank"


def _count_tools(row: Row, number: int, result: RowsResult, *, offers_tools: bool) -> None:
    tools = row.params.get("tools")
    names = [str(tool["name"]) for tool in tools or () if isinstance(tool, dict) and tool.get("name")]
    result.tool_rows += bool(tools) or ("tools" not in row.params and offers_tools)
    for name in sorted(set(names) - set(result.environment_tools)) if result.environment_tools else ():
        result.count("unknown_tools", name, number)


def _example(tally: Tally) -> Any:
    """The first value of a field, if its preview is whole."""
    try:
        return orjson.loads(str(tally.first[0].get("value")))
    except orjson.JSONDecodeError:
        return None


def _declared_fields(task: type[Task]) -> dict[str, JsonObject]:
    return {
        info.alias or name: {"type": _type_name(info.annotation), "required": info.is_required(), "present": 0}
        for name, info in task.model_fields.items()
    }


def _type_name(annotation: Any) -> str:
    plain = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    return annotation.__name__ if plain else _MODULES.sub("", str(annotation))


def _path(loc: tuple[int | str, ...]) -> str:
    """`choices[*].text`: the same for every index."""
    text = ""
    for step in loc:
        text += "[*]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".") or "the row"
