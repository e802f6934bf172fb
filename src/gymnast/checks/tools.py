"""`check tools`: checks the tools of every row, each distinct schema once, in one pass and constant memory."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from gymnast.checks.schema_compilers import compile_problems, installed_compilers
from gymnast.checks.schema_rules import BACKENDS, Backend, BackendProblem, backend_problems
from gymnast.checks.tally import Tally
from gymnast.data.row import BadRow, parse_line
from gymnast.data.spill import ScratchFile, SpillSet
from gymnast.data.tool_schema import is_tool_name
from gymnast.store.lines import numbered_lines
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from gymnast.types.json import JsonObject

_CACHED_TOOLS: Final = 4096
_DIGEST: Final = 12
_MAX_TOOLS: Final = 128


class ToolProblem(NamedTuple):
    """What a backend does with a tool of a row."""

    tool: str
    digest: str
    problem: BackendProblem


class ProblemKey(NamedTuple):
    backend: Backend
    rule: str
    effect: str


@dataclass(slots=True)
class ToolsResult:
    """The problems of a file's tools."""

    rows: int = 0
    rows_with_tools: int = 0
    tools: int = 0
    schemas: int = 0
    """Distinct tools."""
    bad_rows: int = 0
    """Rows that a backend refuses, or that are malformed."""
    compiled_with: list[str] = field(default_factory=list)
    tallies: dict[ProblemKey, Tally] = field(default_factory=dict)
    refused_rows: Counter[str] = field(default_factory=Counter)
    """By backend."""

    @property
    def ok(self) -> bool:
        return not self.bad_rows

    def as_json(self) -> JsonObject:
        return {
            "ok": self.ok,
            "rows": self.rows,
            "rows_with_tools": self.rows_with_tools,
            "tools": self.tools,
            "schemas": self.schemas,
            "bad_rows": self.bad_rows,
            "refused_rows": dict(self.refused_rows),
            "compiled_with": self.compiled_with,
            "problems": [{**key._asdict(), **tally.as_json()} for key, tally in self.rank_problems()],
        }

    def lines(self) -> Iterator[str]:
        for key, tally in self.rank_problems():
            yield f"{key.effect}  {key.backend}: {key.rule} ({tally.rows} rows)"
            for example in tally.first:
                tool = f" tool '{example['tool']}'" if example["tool"] else ""
                yield f"  line {example['line']}{tool} {example['where']}: {example['what']}".replace(" : ", ": ")
            yield f"  next: {tally.first[0]['next']}"
        compiled = f"; compiled with {', '.join(self.compiled_with)}" if self.compiled_with else ""
        yield (
            f"{self.rows} rows, {self.rows_with_tools} with tools, {self.schemas} distinct tools{compiled}: "
            + (f"{self.bad_rows} rows would be refused" if self.bad_rows else "nothing would be refused")
        )

    def rank_problems(self) -> list[tuple[ProblemKey, Tally]]:
        """Refusals first, then by number of rows."""
        return sorted(self.tallies.items(), key=lambda entry: (entry[0].effect != "refused", -entry[1].rows, entry[0]))


def check_tools(
    path: Path,
    *,
    backends: Collection[str] = BACKENDS,
    compile_too: bool = True,
    on_row: Callable[[JsonObject], object] | None = None,
) -> ToolsResult:
    """Check the tools of every row. Calls `on_row` with the problems of each row that has any."""
    compilers = installed_compilers() if compile_too else {}
    compilers = {backend: compiler for backend, compiler in compilers.items() if backend in backends}
    with ScratchFile() as scratch:
        checker = _ToolChecker(frozenset(backends) | {"any"}, compilers, SpillSet(scratch, _DIGEST))
        for number, line in numbered_lines(path):
            problems = checker.read(number, line)
            if problems and on_row is not None:
                on_row(_row_json(number, problems))
        checker.result.schemas = checker.digests.count()
    return checker.result


class _ToolChecker:
    """Reads a file in one pass and caches the problems of recently seen tools."""

    def __init__(
        self, backends: frozenset[str], compilers: dict[Backend, Callable[[str], None]], digests: SpillSet
    ) -> None:
        self._backends = backends
        self._compilers = compilers
        self._cache: OrderedDict[bytes, tuple[BackendProblem, ...]] = OrderedDict()
        self.digests = digests
        self.result = ToolsResult(compiled_with=sorted(compilers))

    def read(self, number: int, line: bytes) -> list[ToolProblem]:
        result = self.result
        result.rows += 1
        try:
            problems = list(self._row_problems(parse_line(line)))
        except BadRow as error:
            problems = [_row_level("json", str(error), "correct the line; see `gymnast data validate`")]
        problems = [entry for entry in problems if entry.problem.backend in self._backends]
        refusing = {entry.problem.backend for entry in problems if entry.problem.effect == "refused"}
        result.bad_rows += bool(refusing)
        result.refused_rows.update(refusing)
        self._count(number, problems)
        return problems

    def _row_problems(self, row: JsonObject) -> Iterator[ToolProblem]:
        params = row.get(PARAMS)
        if not isinstance(params, dict):
            return
        tools = params.get("tools")
        yield from _choice_problems(params, tools)
        if tools is None:
            return
        if not isinstance(tools, list):
            yield _row_level("form", "'tools' is not a list", "write a list of tools")
            return
        self.result.rows_with_tools += bool(tools)
        self.result.tools += len(tools)
        for tool in tools:
            digest = _digest(tool)
            name = str(tool.get("name")) if isinstance(tool, dict) else "?"
            yield from (ToolProblem(name, digest.hex(), problem) for problem in self._tool_problems(digest, tool))
        yield from _combination_problems([tool for tool in tools if isinstance(tool, dict)])

    def _tool_problems(self, digest: bytes, tool: Any) -> tuple[BackendProblem, ...]:
        problems = self._cache.get(digest)
        if problems is not None:
            self._cache.move_to_end(digest)
            return problems
        self.digests.add(digest)
        problems = tuple(_tool_problems(tool))
        if isinstance(tool, dict) and isinstance(tool.get("parameters"), dict):
            problems += tuple(compile_problems(tool["parameters"], self._compilers))
        self._cache[digest] = problems
        if len(self._cache) > _CACHED_TOOLS:
            self._cache.popitem(last=False)
        return problems

    def _count(self, number: int, problems: list[ToolProblem]) -> None:
        counted: set[ProblemKey] = set()
        for tool, digest, problem in problems:
            key = ProblemKey(problem.backend, problem.rule, problem.effect)
            tally = self.result.tallies.setdefault(key, Tally())
            if key not in counted:
                counted.add(key)
                tally.rows += 1
            example = {"tool": tool, "digest": digest, "where": problem.where, "what": problem.what}
            if not any(all(shown[name] == example[name] for name in example) for shown in tally.first):
                tally.add_example({"line": number, **example, "next": problem.next})


def _tool_problems(tool: Any) -> Iterator[BackendProblem]:
    if not isinstance(tool, dict):
        yield _refusal("form", "the tool is not a JSON object", "write {type, name, description, parameters}")
        return
    if isinstance(tool.get("function"), dict):
        text = "the tool is in Chat Completions form"
        yield _refusal("form", text, "move name, description and parameters to the level of type: function")
        return
    if tool.get("type", "function") != "function":
        return  # hosted tools belong to the endpoint
    name = tool.get("name")
    if not isinstance(name, str) or not is_tool_name(name):
        yield _refusal("name", f"the name {name!r} must be 1 to 64 characters of A-Z a-z 0-9 _ -", "rename the tool")
    if tool.get("parameters") is not None:
        yield from backend_problems(tool["parameters"])


def _combination_problems(tools: list[JsonObject]) -> Iterator[ToolProblem]:
    """Problems of a row's tools in combination."""
    names = Counter(str(tool.get("name")) for tool in tools if tool.get("type", "function") == "function")
    for name, count in names.items():
        if count > 1:
            yield _row_level("duplicate", f"{count} tools are named '{name}'", "rename or remove one", name)
    if len(tools) > _MAX_TOOLS:
        text = f"{len(tools)} tools; many endpoints accept at most {_MAX_TOOLS}"
        yield _row_level("size", text, "give each row fewer tools")
    definitions: dict[str, str] = {}
    for tool in tools:
        schema = tool.get("parameters")
        defs = schema.get("$defs") if isinstance(schema, dict) else None
        for name, body in defs.items() if isinstance(defs, dict) else ():
            if definitions.setdefault(name, repr(body)) != repr(body):
                text = f"two tools define '$defs/{name}' differently; vLLM refuses that if a call is forced"
                yield _row_level("definitions", text, "give each definition a unique name", str(tool.get("name")))


def _choice_problems(params: JsonObject, tools: Any) -> Iterator[ToolProblem]:
    choice = params.get("tool_choice")
    tools = tools if isinstance(tools, list) else []
    if choice == "required" and not tools:
        yield _row_level("choice", "a call is required, but there are no tools", "add tools or drop tool_choice")
    name = choice.get("name") if isinstance(choice, dict) else None
    if name is not None and name not in [tool.get("name") for tool in tools if isinstance(tool, dict)]:
        yield _row_level("choice", f"tool_choice names '{name}', which is not a tool of the row", "correct the name")


def _refusal(rule: str, what: str, next_step: str) -> BackendProblem:
    return BackendProblem("any", rule, "refused", "", what, next_step)


def _row_level(rule: str, what: str, next_step: str, tool: str = "") -> ToolProblem:
    return ToolProblem(tool, "", _refusal(rule, what, next_step))


def _row_json(number: int, problems: list[ToolProblem]) -> JsonObject:
    return {
        "line": number,
        "found": [{"tool": tool, "digest": digest, **asdict(problem)} for tool, digest, problem in problems],
    }


def _digest(tool: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(tool, option=orjson.OPT_SORT_KEYS), digest_size=_DIGEST).digest()
