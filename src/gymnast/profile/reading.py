"""Reads rollouts into columns in one pass: every numeric field, whatever its name; nothing else is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from gymnast.profile.record_batches import SCALAR, RecordBatches, SkippedObject
from gymnast.profile.table import TableBuilder
from gymnast.store.records import record_file
from gymnast.types.task import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX
from gymnast.types.truncation import truncation_of_episode, truncation_of_output, truncation_of_reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gymnast.profile.record_batches import Columns
    from gymnast.profile.table import RolloutTable
    from gymnast.store.records import RecordFile

_INDEXES: Final = frozenset({TASK_INDEX, ROLLOUT_INDEX})
_EPISODE: Final = ("terminated", "truncated")
_NUMBER_STARTS: Final = frozenset(b"-0123456789tf")


class Response(msgspec.Struct):
    """The parts of a response that are read."""

    usage: dict[str, Any] | None = None
    incomplete_details: Any = None
    output: msgspec.Raw = msgspec.Raw()


class AgentRef(msgspec.Struct):
    name: str = ""


_Index = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_TYPED: Final[dict[str, Any]] = {
    "response": Response | None,
    AGENT_REF: AgentRef | None,
    TASK_INDEX: _Index,
    ROLLOUT_INDEX: _Index,
}
_ANY: Final = msgspec.json.Decoder()


def read_rollouts(paths: Sequence[Path | RecordFile], *, texts: Iterable[str] = ()) -> RolloutTable:
    """Read all records of these files. `texts`: fields to read as texts, besides the numbers."""
    reader = _Reader(tuple(texts))
    for source, path in enumerate(paths):
        reader.read(record_file(path), source)
    return reader.builder.build()


class _Reader:
    """Decodes records and adds them to a table in batches with the same fields."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self.builder = TableBuilder(texts)
        self._texts = texts
        self._batches = RecordBatches(self._field_type, self._take, required=_INDEXES)
        self._source = 0
        self._offsets: list[int] = []

    def read(self, records: RecordFile, source: int) -> None:
        self._source = source
        self._batches.read(records, self._offsets.append)

    def _field_type(self, name: str, first: bytes) -> Any:
        if name in _TYPED:
            return _TYPED[name]
        if name in self._texts or first == b"[":  # an answer may be a list or an object
            return msgspec.Raw
        return SkippedObject if first == b"{" else SCALAR

    def _take(self, columns: Columns, size: int) -> None:
        """Add a batch to the table, column by column."""
        responses = columns.get("response", [None] * size)
        builder = self.builder
        for name, values in columns.items():
            kind = self._batches.fields[name]
            if name not in _TYPED and kind is not SkippedObject:
                numbers = [_number(raw) for raw in values] if kind is msgspec.Raw else values
                builder.add_numbers(name, numbers, from_usage=False)
        self._add_usage([response.usage if isinstance(response, Response) else None for response in responses])
        for name in self._texts:
            builder.add_texts(name, [_text(value) for value in columns.get(name, [None] * size)])
        refs = columns.get(AGENT_REF, [None] * size)
        builder.add_agents([ref.name if isinstance(ref, AgentRef) else "" for ref in refs])
        outputs = [response.output if isinstance(response, Response) else b"" for response in responses]
        builder.finish_batch(
            size,
            tasks=columns[TASK_INDEX],
            rollouts=columns[ROLLOUT_INDEX],
            offsets=self._offsets,
            sources=[self._source] * size,
            output_bytes=[memoryview(output).nbytes for output in outputs],
            truncated=list(map(_is_truncated, responses, *(columns.get(name, [None] * size) for name in _EPISODE))),
        )
        self._offsets.clear()

    def _add_usage(self, usages: list[dict[str, Any] | None]) -> None:
        for name in dict.fromkeys(name for usage in usages if usage for name in usage):
            values = [usage.get(name) if usage else None for usage in usages]
            self.builder.add_numbers(name, values, from_usage=True)


def _is_truncated(response: Any, terminated: Any, truncated: Any) -> bool:
    """Whether the record with these fields is of a truncated rollout."""
    if truncation_of_episode(_boolean(terminated), _boolean(truncated)) is not None:
        return True
    if not isinstance(response, Response):
        return False
    reason = truncation_of_reason(response.incomplete_details)
    return (reason or truncation_of_output(response.output)) is not None


def _boolean(value: Any) -> Any:
    """The value of a field, which is raw if some records have an object or a list there."""
    return _ANY.decode(value) if isinstance(value, msgspec.Raw) else value


def _number(raw: Any) -> float | None:
    if raw is msgspec.UNSET or memoryview(raw)[0] not in _NUMBER_STARTS:
        return None
    number: float = _ANY.decode(raw)
    return number


def _text(value: Any) -> str | None:
    """A value as text: texts as they are, anything else as JSON."""
    if value is msgspec.UNSET or value is None:
        return None
    first = memoryview(value)[0]
    if first == ord("n"):
        return None
    return str(_ANY.decode(value)) if first == ord('"') else bytes(value).decode()
