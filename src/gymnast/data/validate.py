"""`data validate`: everything wrong with dataset files, in one pass and flat memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.config.datasets import LICENSES, TYPES
from gymnast.data.checks import row_problems
from gymnast.data.configured import configured_datasets
from gymnast.data.findings import Finding, Findings
from gymnast.data.locate import dataset_files
from gymnast.data.row import BadRow, read_row
from gymnast.data.spill import Scratch, SpillSet
from gymnast.errors import suggest
from gymnast.rollouts.prompt import read_template
from gymnast.store.lines import numbered_lines
from gymnast.types.task import AGENT_REF, agent_name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from gymnast.config import Config
    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.types.json import JsonObject

KINDS: Final = {
    "json": "lines that are no JSON object",
    "schema": "create params that a server would refuse",
    "tool": "tools that cannot be called",
    "agent": "agents that are not configured",
    "empty": "prompts or answers that are empty",
    "duplicate_row": "rows that are there twice",
    "duplicate_id": "different rows under one id",
    "license": "licenses that are not known",
}
_IDS: Final = ("id", "uuid")
_DIGEST: Final = 12
_PLACE: Final = 8


@dataclass(frozen=True, slots=True)
class Checked:
    """A file to validate, and what is known about it."""

    shown: str
    path: Path
    template: PromptTemplate | None = None
    license: str | None = None


@dataclass(slots=True)
class Validation:
    """What was read and what is wrong with it."""

    rows: int = 0
    findings: Findings = field(default_factory=Findings)


def files_to_check(
    config: Config, inputs: Sequence[str], *, prompt_config: str | None = None, license_name: str | None = None
) -> list[Checked]:
    """The given files, or those of all configured datasets, once each."""

    def checked(name: str, path: Path, template: str | None, known_license: str | None) -> Checked:
        found = config.roots.require(template, "the prompt template") if template else None
        return Checked(name, path, read_template(found) if found else None, license_name or known_license)

    if inputs:
        files = [checked(name, config.roots.require(name, "the input file"), prompt_config, None) for name in inputs]
    else:
        datasets = configured_datasets(config, TYPES)
        files = [
            checked(one.jsonl_fpath, path, prompt_config or one.prompt_config, one.license)
            for one, path in zip(datasets, dataset_files(config, datasets), strict=True)
        ]
    return list({one.path.resolve(): one for one in files}.values())


def validate(files: Sequence[Checked], agents: Collection[str] | None, *, allow: Collection[str] = ()) -> Validation:
    """Check every line of every file. Rows are compared across files, ids within one. `allow`: kinds not reported."""
    with Scratch() as scratch:
        work = _Work(files, agents, frozenset(allow), scratch)
        for index, one in enumerate(files):
            work.read(index, one)
        work.report_duplicates()
    return work.result


class _Work:
    """One pass over the files, and what is remembered of each row to find its like."""

    def __init__(
        self, files: Sequence[Checked], agents: Collection[str] | None, allow: frozenset[str], scratch: Scratch
    ) -> None:
        self._files = files
        self._agents = agents
        self._allow = allow
        self._rows = SpillSet(scratch, _DIGEST + _PLACE)
        self._ids = {key: SpillSet(scratch, _DIGEST + _PLACE + _DIGEST) for key in _IDS}
        self.result = Validation()

    def read(self, index: int, one: Checked) -> None:
        for what in license_problems(one):
            self._add("license", Finding(one.shown, 0, what))
        number = 0
        for number, line in numbered_lines(one.path):
            try:
                row = read_row(line, one.template)
            except BadRow as error:
                self._add(error.kind, Finding(one.shown, number, str(error)))
                continue
            for problem in row_problems(row, self._agents):
                self._add(problem.kind, Finding(one.shown, number, problem.what))
            self._remember(row.data, _place(index, number))
        if not number:
            self._add("json", Finding(one.shown, 0, "the file has no rows"))
        self.result.rows += number

    def report_duplicates(self) -> None:
        findings = self.result.findings
        if "duplicate_row" not in self._allow:
            findings.add_unordered("duplicate_row", self._repeated_rows())
        if "duplicate_id" not in self._allow:
            for key, records in self._ids.items():
                findings.add_unordered("duplicate_id", self._repeated_ids(key, records))

    def _add(self, kind: str, finding: Finding) -> None:
        if kind not in self._allow:
            self.result.findings.add(kind, finding)

    def _remember(self, data: JsonObject, place: bytes) -> None:
        """Indexes of earlier runs say nothing about a row. One row for two agents is two rows, but one task."""
        task = _digest({key: value for key, value in data.items() if key != AGENT_REF and not key.startswith("_ng_")})
        self._rows.add(_digest([task.hex(), agent_name_of(data)]) + place)
        for key, records in self._ids.items():
            if isinstance(data.get(key), str | int):
                records.add(_digest([_file(place), data[key]]) + place + task)

    def _repeated_rows(self) -> Iterator[Finding]:
        for first, again in _repeats(self._rows):
            yield self._finding(again[_DIGEST:], f"the same row as {self._shown(first[_DIGEST:])}")

    def _repeated_ids(self, key: str, records: SpillSet) -> Iterator[Finding]:
        for first, again in _repeats(records):
            (place, task), (other_place, other_task) = _split(first), _split(again)
            if task != other_task:  # the same row again is reported as that
                yield self._finding(other_place, f"another row with the '{key}' of line {_line(place)}")

    def _finding(self, place: bytes, what: str) -> Finding:
        return Finding(self._files[_file(place)].shown, _line(place), what)

    def _shown(self, place: bytes) -> str:
        return f"{self._files[_file(place)].shown} line {_line(place)}"


def license_problems(one: Checked) -> Iterator[str]:
    """A license, where one is given, must be one that is known."""
    if one.license is not None and one.license not in LICENSES:
        hint = suggest(one.license, LICENSES)
        yield f"'{one.license}' is no known license" + (f"; {hint}" if hint else "")


def _digest(value: Any) -> bytes:
    """The same for the same content, whatever the order of its keys."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=_DIGEST).digest()


def _repeats(records: SpillSet) -> Iterator[tuple[bytes, bytes]]:
    """Records that begin with the same digest: the first of them, with each later one."""
    first = b""
    for record in records:
        if record[:_DIGEST] == first[:_DIGEST]:
            yield first, record
        else:
            first = record


def _split(record: bytes) -> tuple[bytes, bytes]:
    return record[_DIGEST : _DIGEST + _PLACE], record[_DIGEST + _PLACE :]


def _place(file: int, line: int) -> bytes:
    return file.to_bytes(2, "big") + line.to_bytes(6, "big")  # sorts as the files and their lines do


def _file(place: bytes) -> int:
    return int.from_bytes(place[:2], "big")


def _line(place: bytes) -> int:
    return int.from_bytes(place[2:], "big")
