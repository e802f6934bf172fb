"""The first pass over the runs: keys, rewards and places of the rollouts that may be exported, and why others are not.

Only the fields that a decision needs are decoded. The index takes some 60 bytes per rollout.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import DataError, UserError
from gymnast.store.complete_records import complete_records
from gymnast.store.labels import LabelFilter, read_labels
from gymnast.store.paths import RunPaths
from gymnast.train.dataset.chat import Chat, NotChatError
from gymnast.train.dataset.records import (
    Record,
    agent_of,
    decode_failed,
    decode_fields,
    decode_record,
    is_number,
    is_truncated_record,
    model_of,
    replace_half_pairs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gymnast.store.labels import Labels
    from gymnast.store.records import RecordFile
    from gymnast.train.dataset.chat import ChatReader
    from gymnast.train.dataset.where import Where

TRUNCATED: Final = "truncated"
MASKED: Final = "masked"
TASK_COLUMNS: Final = ("task_mean", "task_max", "task_min", "task_rollouts")
"""Over the scored rollouts of the task, before any filter."""
_OWN_COLUMNS: Final = (
    *("run", "task", "rollout", "reward", "agent", "model", "truncated", "masked", "label", "note"),
    *("input_tokens", "output_tokens", "total_tokens", "tool_calls", "size"),
)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which rollouts are wanted."""

    where: Where | None = None
    by_label: LabelFilter = field(default_factory=LabelFilter)
    include_truncated: bool = False
    include_masked: bool = False
    max_bytes: int | None = None
    dedup: bool = False


class RolloutFacts(msgspec.Struct, frozen=True, gc=False):
    """What is written next to a rollout's messages in every format."""

    run: int
    task: int
    rollout: int
    reward: float


@dataclass(slots=True)
class RunSource:
    """A run that is exported from."""

    output: Path
    name: str
    records: RecordFile
    labels: Labels
    crc32: str = ""
    """This and the size: of its records, once they were read."""
    size_bytes: int = 0
    origins: set[tuple[str, str]] = field(default_factory=set)
    """Agents and models of the rollouts."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A rollout that was added to the index."""

    position: int
    """In the index; -1 if rollouts are written as they are read."""
    run: int
    record: Record
    line: bytes
    chat: Chat | None = None
    """If the filters needed it."""
    is_truncated: bool = False


@dataclass(slots=True)
class Index:
    """The rollouts that passed the filters, in the order of the runs and of their files."""

    runs: list[RunSource]
    run: array[int] = field(default_factory=partial(array, "i"))
    task: array[int] = field(default_factory=partial(array, "q"))
    rollout: array[int] = field(default_factory=partial(array, "q"))
    reward: array[float] = field(default_factory=lambda: array("d"))
    offset: array[int] = field(default_factory=partial(array, "q"))
    length: array[int] = field(default_factory=partial(array, "q"))
    """Bytes of the line."""
    digests: dict[int, bytes] = field(default_factory=dict)
    """Of completions, by position, if duplicates are looked for."""
    prompts: list[bytes] = field(default_factory=list)
    """The digest of each prompt, if splits or pairs need it."""
    left_out: Counter[str] = field(default_factory=Counter)
    read: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Rollouts that never got a score, by kind."""
    tasks_read: set[tuple[int, int]] = field(default_factory=set)
    has_parts: bool = False
    """Whether a message may have content that is not text."""

    def __len__(self) -> int:
        return len(self.task)

    def tasks(self) -> dict[tuple[int, int], list[int]]:
        """The positions of each task's rollouts, by run and task, in their order; positions by rollout index."""
        groups: dict[tuple[int, int], list[int]] = {}
        for position, key in enumerate(zip(self.run, self.task, strict=True)):
            groups.setdefault(key, []).append(position)
        for members in groups.values():
            members.sort(key=self.rollout.__getitem__)
        return groups


def open_runs(outputs: Sequence[Path]) -> list[RunSource]:
    """The runs, each with a name that is unique among them."""
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise UserError("a run is named twice", next="name every run once")
    names: Counter[str] = Counter()
    runs = []
    for output in outputs:
        names[output.stem] += 1
        number = names[output.stem]
        name = output.stem if number == 1 else f"{output.stem}-{number}"
        records = complete_records(output)
        if not records.exists():
            hint = "collect the run first, or merge its chunks"
            raise DataError("the run has no scored rollouts", where=str(output), next=hint)
        runs.append(RunSource(output, name, records, read_labels(output)))
    return runs


def read_lines(records: RecordFile) -> Iterator[bytes]:
    """The lines of a file of records."""
    try:
        with records.open() as stream:
            yield from stream
    except OSError as error:
        raise DataError(f"cannot read the rollouts: {error.strerror or error}", where=str(records.path)) from error


class Indexer:
    """Reads runs into an index. `reader` converts where the length, duplicates or prompts matter.

    Everything up to `needs_tasks` follows from the filters and says what has to be read; the rest is gathered once per
    record, in the order of the runs' files.
    """

    def __init__(
        self,
        runs: list[RunSource],
        filters: Filters,
        reader: ChatReader | None,
        *,
        with_prompts: bool = False,
        finds_parts: bool = False,
        decode: Callable[[bytes, Path, int], Record] = decode_record,
    ) -> None:
        self.index = Index(runs)
        self._decode = decode
        self.is_stream = False
        """Whether rollouts are only read once and not kept."""
        self._filters = filters
        self.reader = reader
        self._with_prompts = with_prompts
        self._finds_parts = finds_parts
        self._columns = filters.where.columns if filters.where is not None else ()
        self._has_filters = bool(self._columns or filters.by_label)
        self._foreign = [name for name in self._columns if name not in _OWN_COLUMNS and name not in TASK_COLUMNS]
        self._met: set[str] = set()
        self._keys: list[str] = []
        self.needs_tasks = any(name in TASK_COLUMNS for name in self._columns)
        self._values: list[dict[str, Any]] = []
        self._last_values: dict[str, Any] = {}
        self._scores: dict[tuple[int, int], tuple[int, float, float, float]] = {}
        self._wanted = _wanted_decoder({name.split(".")[0] for name in self._foreign}) if self._foreign else None

    def stream(self) -> Iterator[Entry]:
        """Read all runs; yields each rollout that passes the filters of single rollouts."""
        self._filters.by_label.check(run.labels for run in self.index.runs)
        for number, run in enumerate(self.index.runs):
            scored: set[int] = set()
            yield from self._read_run(number, run, scored)
            self._read_failures(run, scored)
        index = self.index
        where = self._filters.where
        if where is not None and index.read:
            for name in self._foreign:
                if name not in self._met:
                    raise where.unknown_column(name, [*_OWN_COLUMNS, *TASK_COLUMNS, *self._keys])

    def build(self) -> Index:
        """The complete index."""
        for _ in self.stream():
            pass
        if self.needs_tasks:
            self._keep(self._passing_tasks())
        if self._filters.dedup:
            self._keep(self._first_copies())
        return self.index

    def _read_run(self, number: int, run: RunSource, seen: set[int]) -> Iterator[Entry]:
        """Add the records of a run, and their keys to `seen`; yields what is in the index, as it is read."""
        index, add, decode, path, crc, offset = self.index, self._add, self._decode, run.records.path, 0, 0
        crc32 = zlib.crc32
        for line_number, line in enumerate(read_lines(run.records), 1):
            crc = crc32(line, crc)
            if not line.isspace():
                record = decode(line, path, line_number)
                packed = (record.task << 32) | (record.rollout & 0xFFFFFFFF)
                if packed in seen:
                    raise _duplicate(record, path, line_number)
                seen.add(packed)
                try:
                    entry = add(number, run, record, offset, line)
                except NotChatError as reason:
                    index.left_out[str(reason)] += 1
                else:
                    yield entry
                if not self._keys:
                    self._keys = [name for name in decode_fields(line) if not name.startswith("_ng_")]
            offset += len(line)
        index.read += len(seen)
        run.crc32, run.size_bytes = f"{crc:08x}", offset

    def _add(self, number: int, run: RunSource, record: Record, offset: int, line: bytes) -> Entry:
        """Add a record to the index. Raises NotChatError with the reason if it is left out."""
        index, task, reward = self.index, record.task, record.reward
        if record.failure or not is_number(reward):
            raise NotChatError("no_reward")
        if self.needs_tasks:
            self._add_score((number, task), reward)
        index.tasks_read.add((number, task))
        is_truncated = is_truncated_record(record)
        if self._has_filters or is_truncated or record.masked is True:
            self._filter(run, record, line, is_truncated=is_truncated)
        chat = self._read_chat(record) if self.reader is not None else None
        if self.needs_tasks:
            self._values.append(self._last_values)
        run.origins.add((agent_of(record), model_of(record)))
        if self.is_stream:
            return Entry(-1, number, record, line, chat, is_truncated)
        if not index.has_parts and self._finds_parts and b'"input_image"' in line:
            index.has_parts = True
        position = len(index.run)
        index.run.append(number)
        index.task.append(record.task)
        index.rollout.append(record.rollout)
        index.reward.append(reward)
        index.offset.append(offset)
        index.length.append(len(line))
        return Entry(position, number, record, line, chat, is_truncated)

    def _add_score(self, task: tuple[int, int], reward: float) -> None:
        before = self._scores.get(task)
        if before is None:
            self._scores[task] = (1, reward, reward, reward)
        else:
            count, total, highest, lowest = before
            self._scores[task] = (count + 1, total + reward, max(highest, reward), min(lowest, reward))

    def _filter(self, run: RunSource, record: Record, line: bytes, *, is_truncated: bool) -> None:
        """Raise NotChatError with the reason if a record is not wanted."""
        filters = self._filters
        if record.masked is True and not filters.include_masked:
            raise NotChatError(MASKED)
        if is_truncated and not filters.include_truncated:
            raise NotChatError(TRUNCATED)
        if filters.by_label and not filters.by_label.accepts(run.labels, record.task, record.rollout):
            raise NotChatError("label")
        if self._columns and not self._matches(run, record, line, is_truncated=is_truncated):
            raise NotChatError("where")

    def _read_chat(self, record: Record) -> Chat:
        assert self.reader is not None
        chat = self.reader.read(record)
        if self._filters.max_bytes is not None and chat.size_bytes > self._filters.max_bytes:
            raise NotChatError("too_long")
        if self._filters.dedup:
            self.index.digests[len(self.index)] = chat.prompt_digest + chat.completion_digest
        if self._with_prompts:
            self.index.prompts.append(chat.prompt_digest)
        return chat

    def _matches(self, run: RunSource, record: Record, line: bytes, *, is_truncated: bool) -> bool:
        where = self._filters.where
        assert where is not None
        values = _own_values(run, record, line, is_truncated=is_truncated)
        if self._wanted is not None:
            wanted = self._wanted(line)
            for name in self._foreign:
                value = _follow(wanted, name)
                if value is not msgspec.UNSET:
                    self._met.add(name)
                    values[name] = value
        if self.needs_tasks:
            self._last_values = {name: values.get(name) for name in self._columns}
            return True
        return where.matches(values)

    def _passing_tasks(self) -> Callable[[int], str | None]:
        where, index = self._filters.where, self.index
        assert where is not None

        def reason(position: int) -> str | None:
            count, total, highest, lowest = self._scores[index.run[position], index.task[position]]
            own = dict(zip(TASK_COLUMNS, (total / count, highest, lowest, count), strict=True))
            return None if where.matches(self._values[position] | own) else "where"

        return reason

    def _first_copies(self) -> Callable[[int], str | None]:
        seen: set[bytes] = set()
        digests = self.index.digests

        def reason(position: int) -> str | None:
            digest = digests[position]
            if digest in seen:
                return "duplicate"
            seen.add(digest)
            return None

        return reason

    def _keep(self, reason_of: Callable[[int], str | None]) -> None:
        """Remove the rollouts that have a reason to be left out."""
        index = self.index
        kept = []
        for position in range(len(index)):
            reason = reason_of(position)
            if reason is None:
                kept.append(position)
            else:
                index.left_out[reason] += 1
        for name in ("run", "task", "rollout", "reward", "offset", "length"):
            column = getattr(index, name)
            setattr(index, name, array(column.typecode, [column[position] for position in kept]))
        index.prompts = [index.prompts[position] for position in kept] if index.prompts else []
        index.digests = {new: index.digests[old] for new, old in enumerate(kept)} if index.digests else {}

    def _read_failures(self, run: RunSource, scored: set[int]) -> None:
        """Count the rollouts that failed and have no score; the last attempt decides."""
        failures = complete_records(RunPaths(run.output).failures)
        last: dict[int, str] = {}
        for number, line in enumerate(read_lines(failures) if failures.exists() else (), 1):
            if line.isspace():
                continue
            try:
                attempt = decode_failed(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"cannot read a failure: {error}", where=f"{failures.path} line {number}") from error
            packed = (attempt.task << 32) | (attempt.rollout & 0xFFFFFFFF)
            if packed not in scored:
                last[packed] = attempt.kind or "unknown"
        self.index.failed.update(last.values())


def _duplicate(record: Record, path: Path, line_number: int) -> DataError:
    hint = "remove the duplicate with `gymnast collect --resume`: it would count twice"
    what = f"rollout {record.task}:{record.rollout} has more than one record"
    return DataError(what, where=f"{path} line {line_number}", next=hint)


def _own_values(run: RunSource, record: Record, line: bytes, *, is_truncated: bool) -> dict[str, Any]:
    """The columns that every rollout has."""
    usage = record.response.usage if record.response is not None else None
    decoded = msgspec.json.decode(usage) if usage else None
    tokens = decoded if isinstance(decoded, dict) else {}
    output = (record.response.output or ()) if record.response is not None else ()
    label, note = run.labels.of(record.task, record.rollout) if run.labels else (None, None)
    return {
        "run": run.name,
        "task": record.task,
        "rollout": record.rollout,
        "reward": record.reward,
        "agent": agent_of(record),
        "model": model_of(record),
        "truncated": is_truncated,
        "masked": record.masked is True,
        "label": label,
        "note": note,
        "input_tokens": tokens.get("input_tokens"),
        "output_tokens": tokens.get("output_tokens"),
        "total_tokens": tokens.get("total_tokens"),
        "tool_calls": sum(item.type == "function_call" for item in output),
        "size": len(line),
    }


def _wanted_decoder(roots: set[str]) -> Callable[[bytes], Any]:
    names = sorted(roots)
    struct = msgspec.defstruct(
        "Wanted",
        [(f"f{number}", Any, msgspec.UNSET) for number in range(len(names))],
        rename={f"f{number}": name for number, name in enumerate(names)},
        gc=False,
    )
    decode = msgspec.json.Decoder(struct).decode

    def read(line: bytes) -> dict[str, Any]:
        try:
            wanted = decode(line)
        except msgspec.DecodeError:
            wanted = decode(replace_half_pairs(line) or line)
        return dict(zip(names, msgspec.structs.astuple(wanted), strict=True))

    return read


def _follow(wanted: dict[str, Any], name: str) -> Any:
    """The value at a dotted path; UNSET if there is none."""
    root, *path = name.split(".")
    value = wanted[root]
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return msgspec.UNSET
        value = value[key]
    return value
