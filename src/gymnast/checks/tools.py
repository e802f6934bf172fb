"""`check tools`: the tools of every row, once per different schema, in one pass and flat memory."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from gymnast.checks.compilers import compile_complaints, installed_compilers
from gymnast.checks.tool_backends import BACKENDS, Backend, Complaint, schema_complaints
from gymnast.data.row import BadRow, parse_line
from gymnast.data.spill import Scratch, SpillSet
from gymnast.data.tool_schema import is_tool_name
from gymnast.store.lines import numbered_lines
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from gymnast.types.json import JsonObject

SHOWN: Final = 5
_REMEMBERED: Final = 4096
_DIGEST: Final = 12
_MOST_TOOLS: Final = 128


class ToolFinding(NamedTuple):
    """What a backend does with a tool of a row."""

    tool: str
    digest: str
    complaint: Complaint


class Key(NamedTuple):
    """What findings are counted under."""

    backend: Backend
    rule: str
    effect: str


@dataclass(slots=True)
class Tally:
    """How often something was found, and the first few."""

    rows: int = 0
    first: list[JsonObject] = field(default_factory=list)


@dataclass(slots=True)
class ToolReport:
    """What was read and found."""

    rows: int = 0
    rows_with_tools: int = 0
    tools: int = 0
    schemas: int = 0
    """Different tools."""
    bad_rows: int = 0
    """Rows that a backend refuses, or that are no rows."""
    compiled_with: list[str] = field(default_factory=list)
    found: dict[Key, Tally] = field(default_factory=dict)
    refused_rows: Counter[str] = field(default_factory=Counter)
    """By backend."""

    @property
    def ok(self) -> bool:
        return not self.bad_rows

    def as_json(self) -> JsonObject:
        problems = [{**key._asdict(), "rows": tally.rows, "first": tally.first} for key, tally in self.ranked()]
        return {
            "ok": self.ok,
            "rows": self.rows,
            "rows_with_tools": self.rows_with_tools,
            "tools": self.tools,
            "schemas": self.schemas,
            "bad_rows": self.bad_rows,
            "refused_rows": dict(self.refused_rows),
            "compiled_with": self.compiled_with,
            "problems": problems,
        }

    def ranked(self) -> list[tuple[Key, Tally]]:
        """Refusals first, then by rows."""
        return sorted(self.found.items(), key=lambda entry: (entry[0].effect != "refused", -entry[1].rows, entry[0]))


def check_tools(
    path: Path,
    *,
    backends: Collection[str] = BACKENDS,
    compile_too: bool = True,
    on_row: Callable[[JsonObject], object] | None = None,
) -> ToolReport:
    """Look at the tools of every row. `on_row` is told of each row about which there is something to say."""
    compilers = {name: one for name, one in installed_compilers().items() if name in backends} if compile_too else {}
    with Scratch() as scratch:
        work = _Work(frozenset(backends) | {"any"}, compilers, SpillSet(scratch, _DIGEST))
        for number, line in numbered_lines(path):
            said = work.read(number, line)
            if said and on_row is not None:
                on_row(_row_json(number, said))
        work.report.schemas = work.digests.count()
    return work.report


class _Work:
    """One pass over a file, with the complaints about the tools seen lately."""

    def __init__(
        self, backends: frozenset[str], compilers: dict[Backend, Callable[[str], None]], digests: SpillSet
    ) -> None:
        self._backends = backends
        self._compilers = compilers
        self._known: OrderedDict[bytes, tuple[Complaint, ...]] = OrderedDict()
        self.digests = digests
        self.report = ToolReport(compiled_with=sorted(compilers))

    def read(self, number: int, line: bytes) -> list[ToolFinding]:
        report = self.report
        report.rows += 1
        try:
            row = parse_line(line)
            found = list(self._row_findings(row))
        except BadRow as error:
            found = [_row_level("json", str(error), "correct the line: gymnast data validate")]
        found = [one for one in found if one.complaint.backend in self._backends]
        refusing = {one.complaint.backend for one in found if one.complaint.effect == "refused"}
        report.bad_rows += bool(refusing)
        report.refused_rows.update(refusing)
        self._count(number, found)
        return found

    def _row_findings(self, row: JsonObject) -> Iterator[ToolFinding]:
        params = row.get(PARAMS)
        tools = params.get("tools") if isinstance(params, dict) else None
        if params is None or not isinstance(params, dict):
            return
        yield from _choice_findings(params, tools)
        if tools is None:
            return
        if not isinstance(tools, list):
            yield _row_level("form", "'tools' is no list", "write a list of tools")
            return
        self.report.rows_with_tools += bool(tools)
        self.report.tools += len(tools)
        for tool in tools:
            digest = _digest(tool)
            name = str(tool.get("name")) if isinstance(tool, dict) else "?"
            yield from (ToolFinding(name, digest.hex(), one) for one in self._complaints(digest, tool))
        yield from _together([tool for tool in tools if isinstance(tool, dict)])

    def _complaints(self, digest: bytes, tool: Any) -> tuple[Complaint, ...]:
        known = self._known.get(digest)
        if known is not None:
            self._known.move_to_end(digest)
            return known
        self.digests.add(digest)
        known = tuple(_tool_complaints(tool))
        if isinstance(tool, dict) and isinstance(tool.get("parameters"), dict):
            known += tuple(compile_complaints(tool["parameters"], self._compilers))
        self._known[digest] = known
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return known

    def _count(self, number: int, found: list[ToolFinding]) -> None:
        counted: set[Key] = set()
        for one in found:
            said = one.complaint
            key = Key(said.backend, said.rule, said.effect)
            tally = self.report.found.setdefault(key, Tally())
            if key not in counted:
                counted.add(key)
                tally.rows += 1
            example = {"tool": one.tool, "digest": one.digest, "where": said.where, "what": said.what}
            if len(tally.first) < SHOWN and not any(_same(example, shown) for shown in tally.first):
                tally.first.append({"line": number, **example, "next": said.next})


def _tool_complaints(tool: Any) -> Iterator[Complaint]:
    """Everything about one tool by itself."""
    if not isinstance(tool, dict):
        yield _refusal("form", "the tool is no JSON object", "write {type, name, description, parameters}")
        return
    if isinstance(tool.get("function"), dict):
        text = "the tool has the form of Chat Completions"
        yield _refusal("form", text, "put name, description and parameters beside type: function")
        return
    if tool.get("type", "function") != "function":
        return  # hosted tools are the endpoint's own
    name = tool.get("name")
    if not isinstance(name, str) or not is_tool_name(name):
        yield _refusal("name", f"the name {name!r} is not 1 to 64 of A-Z a-z 0-9 _ -", "rename the tool")
    if tool.get("parameters") is not None:
        yield from schema_complaints(tool["parameters"])


def _together(tools: list[JsonObject]) -> Iterator[ToolFinding]:
    """What is wrong with the tools of a row only because of each other."""
    names = Counter(str(tool.get("name")) for tool in tools if tool.get("type", "function") == "function")
    for name, count in names.items():
        if count > 1:
            yield _row_level("duplicate", f"{count} tools are called '{name}'", "rename or remove one", name)
    if len(tools) > _MOST_TOOLS:
        text = f"{len(tools)} tools; many endpoints take {_MOST_TOOLS}"
        yield _row_level("size", text, "offer fewer tools to a row")
    definitions: dict[str, str] = {}
    for tool in tools:
        schema = tool.get("parameters")
        own = schema.get("$defs") if isinstance(schema, dict) else None
        for name, body in own.items() if isinstance(own, dict) else ():
            if definitions.setdefault(name, repr(body)) != repr(body):
                text = f"two tools define '$defs/{name}' differently; vLLM refuses that where a call is forced"
                yield _row_level("definitions", text, "give each its own name", str(tool.get("name")))


def _choice_findings(params: JsonObject, tools: Any) -> Iterator[ToolFinding]:
    choice = params.get("tool_choice")
    listed = tools if isinstance(tools, list) else []
    if choice == "required" and not listed:
        yield _row_level("choice", "a call is required, but there are no tools", "add tools or drop tool_choice")
    name = choice.get("name") if isinstance(choice, dict) else None
    if name is not None and name not in [tool.get("name") for tool in listed if isinstance(tool, dict)]:
        yield _row_level("choice", f"tool_choice names '{name}', which is no tool of the row", "correct the name")


def _refusal(rule: str, what: str, next_step: str) -> Complaint:
    return Complaint("any", rule, "refused", "", what, next_step)


def _row_level(rule: str, what: str, next_step: str, tool: str = "") -> ToolFinding:
    return ToolFinding(tool, "", _refusal(rule, what, next_step))


def _row_json(number: int, found: list[ToolFinding]) -> JsonObject:
    return {
        "line": number,
        "found": [{"tool": one.tool, "digest": one.digest, **asdict(one.complaint)} for one in found],
    }


def _same(example: JsonObject, shown: JsonObject) -> bool:
    return all(shown[name] == example[name] for name in ("digest", "tool", "where", "what"))


def _digest(tool: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(tool, option=orjson.OPT_SORT_KEYS), digest_size=_DIGEST).digest()
