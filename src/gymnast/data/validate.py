"""`data validate`: finds every problem in dataset files, in one pass and constant memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from gymnast.config.datasets import LICENSES, TYPES
from gymnast.data.datasets import configured_datasets, locate_files
from gymnast.data.problems import FileProblem, Problems
from gymnast.data.row import BadRow, read_row
from gymnast.data.spill import ScratchFile, SpillSet
from gymnast.data.tool_schema import tool_problems
from gymnast.errors import suggest
from gymnast.rollouts.prompt import read_template
from gymnast.store.row_files import read_lines
from gymnast.types.task import AGENT_REF, agent_name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from gymnast.config import Config
    from gymnast.data.row import Row
    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.types.json import JsonObject

_ANSWERS: Final = ("expected_answer", "expected_result")
_TEXTS: Final = ("question", "answer")
"""May be null if the verifier does not need them, but not blank."""
KINDS: Final = {
    "json": "lines that are not JSON objects",
    "schema": "create params that a server would reject",
    "tool": "tools that cannot be called",
    "agent": "agents that are not configured",
    "empty": "empty prompts or answers",
    "duplicate_row": "duplicate rows",
    "duplicate_id": "different rows with the same id",
    "license": "unknown licenses",
}
_IDS: Final = ("id", "uuid")
_DIGEST: Final = 12
_POSITION: Final = 8


@dataclass(frozen=True, slots=True)
class InputFile:
    name: str
    path: Path
    template: PromptTemplate | None = None
    license: str | None = None


@dataclass(slots=True)
class ValidationResult:
    """The number of rows and their problems."""

    rows: int = 0
    problems: Problems = field(default_factory=Problems)


def select_files(
    config: Config, inputs: Sequence[str], *, prompt_config: str | None = None, license_name: str | None = None
) -> list[InputFile]:
    """The given files, or those of all configured datasets, without duplicates."""

    def make_file(name: str, path: Path, template: str | None, known_license: str | None) -> InputFile:
        template_path = config.roots.require(template, "the prompt template") if template else None
        prompt_template = read_template(template_path) if template_path else None
        return InputFile(name, path, prompt_template, license_name or known_license)

    if inputs:
        files = [make_file(name, config.roots.require(name, "the input file"), prompt_config, None) for name in inputs]
    else:
        datasets = configured_datasets(config, TYPES)
        files = [
            make_file(dataset.jsonl_fpath, path, prompt_config or dataset.prompt_config, dataset.license)
            for dataset, path in zip(datasets, locate_files(config, datasets), strict=True)
        ]
    return list({file.path.resolve(): file for file in files}.values())


def validate(
    files: Sequence[InputFile], agents: Collection[str] | None, *, allow: Collection[str] = ()
) -> ValidationResult:
    """Validate every line. Compares rows across files, ids within a file. `allow`: kinds not to report."""
    with ScratchFile() as scratch:
        validator = _Validator(files, agents, frozenset(allow), scratch)
        for index, file in enumerate(files):
            validator.read(index, file)
        validator.report_duplicates()
    return validator.result


class _Validator:
    """Reads the files in one pass and keeps digests of each row to find duplicates."""

    def __init__(
        self, files: Sequence[InputFile], agents: Collection[str] | None, allow: frozenset[str], scratch: ScratchFile
    ) -> None:
        self._files = files
        self._agents = agents
        self._allow = allow
        self._rows = SpillSet(scratch, _DIGEST + _POSITION)
        self._ids = {key: SpillSet(scratch, _DIGEST + _POSITION + _DIGEST) for key in _IDS}
        self.result = ValidationResult()

    def read(self, index: int, file: InputFile) -> None:
        if file.license is not None and file.license not in LICENSES:
            hint = suggest(file.license, LICENSES)
            self._add("license", FileProblem(file.name, 0, f"unknown license '{file.license}'; {hint}"))
        number = 0
        for number, line in read_lines(file.path):
            try:
                row = read_row(line, file.template)
            except BadRow as error:
                self._add(error.kind, FileProblem(file.name, number, str(error)))
                continue
            for problem in row_problems(row, self._agents):
                self._add(problem.kind, FileProblem(file.name, number, problem.what))
            self._remember(row.data, _position(index, number))
        if not number:
            self._add("json", FileProblem(file.name, 0, "the file has no rows"))
        self.result.rows += number

    def report_duplicates(self) -> None:
        problems = self.result.problems
        if "duplicate_row" not in self._allow:
            problems.add_unordered("duplicate_row", self._repeated_rows())
        if "duplicate_id" not in self._allow:
            for key, records in self._ids.items():
                problems.add_unordered("duplicate_id", self._repeated_ids(key, records))

    def _add(self, kind: str, problem: FileProblem) -> None:
        if kind not in self._allow:
            self.result.problems.add(kind, problem)

    def _remember(self, data: JsonObject, position: bytes) -> None:
        """Ignores the indexes of earlier runs. The same row for two agents is two rows but one task."""
        task = _digest({key: value for key, value in data.items() if key != AGENT_REF and not key.startswith("_ng_")})
        self._rows.add(_digest([task.hex(), agent_name_of(data)]) + position)
        for key, records in self._ids.items():
            if isinstance(data.get(key), str | int):
                records.add(_digest([_file(position), data[key]]) + position + task)

    def _repeated_rows(self) -> Iterator[FileProblem]:
        for first, again in _repeats(self._rows):
            yield self._problem(again[_DIGEST:], f"duplicate of {self._describe(first[_DIGEST:])}")

    def _repeated_ids(self, key: str, records: SpillSet) -> Iterator[FileProblem]:
        for first, again in _repeats(records):
            (position, task), (other_position, other_task) = _split(first), _split(again)
            if task != other_task:  # identical rows are reported as duplicate_row
                yield self._problem(other_position, f"same '{key}' as line {_line(position)}, but a different row")

    def _problem(self, position: bytes, what: str) -> FileProblem:
        return FileProblem(self._files[_file(position)].name, _line(position), what)

    def _describe(self, position: bytes) -> str:
        return f"{self._files[_file(position)].name} line {_line(position)}"


def _digest(value: Any) -> bytes:
    """A digest of the content, independent of key order."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=_DIGEST).digest()


def _repeats(records: SpillSet) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of records with the same digest: the first, and each later one."""
    first = b""
    for record in records:
        if record[:_DIGEST] == first[:_DIGEST]:
            yield first, record
        else:
            first = record


def _split(record: bytes) -> tuple[bytes, bytes]:
    return record[_DIGEST : _DIGEST + _POSITION], record[_DIGEST + _POSITION :]


def _position(file: int, line: int) -> bytes:
    return file.to_bytes(2, "big") + line.to_bytes(6, "big")  # sorts by file, then by line


def _file(position: bytes) -> int:
    return int.from_bytes(position[:2], "big")


def _line(position: bytes) -> int:
    return int.from_bytes(position[2:], "big")


class RowProblem(NamedTuple):
    kind: str
    what: str


def row_problems(row: Row, agents: Collection[str] | None) -> Iterator[RowProblem]:
    """The problems of a well-formed row. `agents`: the configured ones, or None if unknown."""
    for what in _agent_problems(row.data, agents):
        yield RowProblem("agent", what)
    for what in tool_problems(row.params.get("tools") or []):
        yield RowProblem("tool", what)
    if not _has_prompt(row.params):
        yield RowProblem("empty", "the prompt is empty")
    for key in (*_ANSWERS, *_TEXTS):
        if key in row.data and _is_blank(row.data[key], or_null=key in _ANSWERS):
            yield RowProblem("empty", f"'{key}' is empty")


def _agent_problems(data: JsonObject, agents: Collection[str] | None) -> Iterator[str]:
    if AGENT_REF not in data:
        return
    name = agent_name_of(data)
    if name is None:
        yield f"'{AGENT_REF}' must be an object with a name"
    elif agents is not None and name not in agents:
        hint = suggest(name, agents)
        yield f"the agent '{name}' is not configured" + (f"; {hint}" if hint else "")


def _has_prompt(params: JsonObject) -> bool:
    """True if there is anything to respond to: text, an image, a tool output, or a prompt by reference."""
    if params.get("prompt"):
        return True
    prompt = params["input"]
    if isinstance(prompt, str):
        return bool(prompt.strip())
    return any(_item_has_content(item) for item in prompt)


def _item_has_content(item: JsonObject) -> bool:
    """Only messages can be empty. System and developer messages alone do not count as a prompt."""
    if item.get("type", "message") != "message":
        return True
    if item.get("role") in {"system", "developer"}:
        return False
    content = item["content"]
    if isinstance(content, str):
        return bool(content.strip())
    return any(part.get("type") not in {"input_text", "output_text"} or part["text"].strip() for part in content)


def _is_blank(value: Any, *, or_null: bool) -> bool:
    return (isinstance(value, str) and not value.strip()) or (value is None and or_null)
