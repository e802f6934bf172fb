"""Lines of a run's files as columns: what tables show, sort and filter by, and the text that a search covers.

One decode per line, into a struct made for the fields of this run. A line of an unusual form (lone surrogates, deep
nesting, fields with another type) is decoded the slow way; one that is no record of a rollout is skipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.report.transcript_items import as_text, decode_record
from gymnast.studio.text_signature import sign_texts
from gymnast.types.encoding import encode_json, printable
from gymnast.types.failure import FailureKind
from gymnast.types.task import (
    AGENT_REF,
    FAILURE_CLASS,
    FAILURE_TERMINAL,
    MASK,
    PARAMS,
    ROLLOUT_INDEX,
    TASK_INDEX,
)
from gymnast.types.tokens import LEDGER
from gymnast.types.truncation import truncation_of_episode, truncation_of_output, truncation_of_reason
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gymnast.types.json import JsonObject

MAX_TEXT: Final = 60
"""Longer texts of records are shown, but not sorted or filtered by."""
MAX_FIELDS: Final = 60
"""Fields of records, besides the built-in ones, that are indexed."""
_MAX_KNOWN: Final = 400
_MAX_INDEX: Final = 2**31
_SCALAR: Final[Any] = int | float | bool | str | None
_SAMPLING: Final = ("temperature", "top_p", "max_output_tokens", "reasoning")
_CALL: Final = b'"function_call"'
_CALL_OUTPUT: Final = b'"function_call_output"'


class _Params(msgspec.Struct, gc=False):
    input: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    temperature: Any = None
    top_p: Any = None
    max_output_tokens: Any = None
    reasoning: Any = None


class _Tokens(msgspec.Struct, gc=False):
    input_tokens: Any = None
    output_tokens: Any = None
    total_tokens: Any = None
    prompt_tokens: Any = None
    completion_tokens: Any = None


class _Response(msgspec.Struct, gc=False):
    output: msgspec.Raw = msgspec.Raw()
    usage: _Tokens | None = None
    incomplete_details: Any = None
    status: Any = None
    model: Any = None
    created_at: Any = None
    completed_at: Any = None
    temperature: Any = None
    top_p: Any = None
    max_output_tokens: Any = None
    reasoning: Any = None


class _Usage(msgspec.Struct, gc=False):
    calls: Any = None
    latency_ms: Any = None
    cost: Any = None
    output_tokens: Any = None
    input_tokens: Any = None


class _Capture(msgspec.Struct, gc=False):
    metrics: Any = None


class _Failure(msgspec.Struct, gc=False):
    kind: Any = None
    stage: Any = None
    started_at: Any = None
    seconds: Any = None


class _Agent(msgspec.Struct, gc=False):
    name: Any = None


class _Ignored(msgspec.Struct, gc=False):
    """Any object; its content is skipped."""


_FIXED: Final[dict[str, Any]] = {
    TASK_INDEX: Any,
    ROLLOUT_INDEX: Any,
    "reward": Any,
    PARAMS: _Params | None,
    "response": _Response | None,
    AGENT_REF: _Agent | None,
    MODEL_USAGE: _Usage | None,
    CALL_CAPTURE: _Capture | None,
    LEDGER: _Ignored | None,
    "failure": _Failure | None,
    FAILURE_CLASS: Any,
    FAILURE_TERMINAL: Any,
    MASK: Any,
}
_EPISODE: Final = ("terminated", "truncated")
NUMBERS: Final = (
    *("reward", "input_tokens", "output_tokens", "total_tokens", "seconds", "calls", "turns", "tool_calls"),
    *("cost", "at"),
)
TEXTS: Final = ("agent", "model", "truncated", "finish", "failure", *_SAMPLING)
NAMES: Final = frozenset({*NUMBERS, *TEXTS})
"""Built-in columns. A field of a record with the same name is not a column of its own."""
_RAW_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY: Final = msgspec.json.Decoder()


@dataclass(slots=True)
class Lines:
    """The records in some lines, in columns."""

    keys: NDArray[np.int64]
    """Packed keys."""
    sources: NDArray[np.int32]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    """The length of each line."""
    output_bytes: NDArray[np.int64]
    flags: NDArray[np.uint8]
    """Bits: FAILED, FINAL, MASKED."""
    numbers: dict[str, NDArray[np.float64]]
    """NaN where a record has no number."""
    texts: dict[str, list[str | None]]
    signatures: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 0), np.uint8))

    def __len__(self) -> int:
        return len(self.keys)


FAILED: Final = 1
FINAL: Final = 2
MASKED: Final = 4


class LineReader:
    """Decodes lines of one run. Remembers the fields that its records have."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = dict(_FIXED)
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self.skipped = 0
        """Lines that are no records of a rollout."""

    def read(self, source: int, offsets: Sequence[int], lines: Sequence[bytes], *, failures: bool) -> Lines:
        """The records in these lines, at these offsets of the file with this number."""
        rows: list[Any] = []
        kept: list[int] = []
        decode = self._decoder.decode if self._decoder is not None else None
        known = self._decoder
        for number, line in enumerate(lines):
            try:
                row = decode(line) if decode is not None else None
            except (ValueError, RecursionError):
                row = None
            if row is None:
                row = self._decode(line)
                if row is None:
                    continue
                if self._decoder is not known:  # a new field: rows before have no value in it
                    known = self._decoder
                    decode = known.decode if known is not None else None
            rows.append(row)
            kept.append(number)
        columns = self._as_columns(rows)
        if columns and not (_are_indexes(columns[TASK_INDEX]) and _are_indexes(columns[ROLLOUT_INDEX])):
            pairs = zip(columns[TASK_INDEX], columns[ROLLOUT_INDEX], strict=True)
            valid = [number for number, pair in enumerate(pairs) if _are_indexes(pair)]
            columns = {name: [values[number] for number in valid] for name, values in columns.items()}
            kept = [kept[number] for number in valid]
        self.skipped += len(lines) - len(kept)
        places = [offsets[number] for number in kept], [len(lines[number]) for number in kept]
        return self._build(columns, source, *places, failures=failures)

    def _as_columns(self, rows: Sequence[Any]) -> dict[str, Sequence[Any]]:
        """Decoded rows, some of which may be from before the last fields were added, as columns."""
        if not rows:
            return {}
        width = len(self._fields)
        values = [row if type(row) is tuple else msgspec.structs.astuple(row) for row in rows]
        if len(values[0]) < width:
            values = [(*row, *(msgspec.UNSET,) * (width - len(row))) for row in values]
        return dict(zip(self._fields, zip(*values, strict=True), strict=True))

    # --- decoding ----------------------------------------------------------------------------------------------------

    def _decode(self, line: bytes) -> Any:
        """Decode a line that the struct of lines does not fit, or whose fields are not known yet."""
        while self._extend(line):
            assert self._decoder is not None
            try:
                return self._decoder.decode(line)
            except msgspec.ValidationError:
                continue
            except (ValueError, RecursionError):
                break
        return self._decode_slowly(line)

    def _extend(self, line: bytes) -> bool:
        """Make a struct with the fields of this line. False if there was one, so that something else is unusual."""
        try:
            fields = _RAW_FIELDS.decode(line)
        except (ValueError, RecursionError):
            fields = {}
        has_odd_names = not all(map(_can_be_renamed_to, fields))
        kinds = {name: bytes(memoryview(raw)[:1]) not in (b"{", b"[") for name, raw in fields.items()}
        return self._add_fields(kinds) and not has_odd_names

    def _add_fields(self, kinds: dict[str, bool]) -> bool:
        """Make a struct with these fields as well, each with whether it is a scalar. False if none is new."""
        new = [name for name in kinds if name not in self._fields and _can_be_renamed_to(name)]
        for name in new[: _MAX_KNOWN - len(self._fields)]:
            self._fields[name] = _SCALAR if kinds[name] else msgspec.Raw
        if not new and self._decoder is not None:
            return False
        names = [f"f{number}" for number in range(len(self._fields))]
        struct = msgspec.defstruct(
            "Line",
            [
                (name, kind | msgspec.UnsetType if kind is not Any else Any, msgspec.UNSET)
                for name, kind in zip(names, self._fields.values(), strict=True)
            ],
            rename=dict(zip(names, self._fields, strict=True)),
            forbid_unknown_fields=len(self._fields) < _MAX_KNOWN,
            gc=False,
        )
        self._decoder = msgspec.json.Decoder(struct)
        return True

    def _decode_slowly(self, line: bytes) -> tuple[Any, ...] | None:
        record = decode_record(line)
        if record is None:
            return None
        self._add_fields({name: not isinstance(value, dict | list) for name, value in record.items()})
        return tuple(_as_kind(record.get(name, msgspec.UNSET), kind) for name, kind in self._fields.items())

    # --- columns -----------------------------------------------------------------------------------------------------

    def _build(
        self,
        columns: dict[str, Sequence[Any]],
        source: int,
        offsets: list[int],
        sizes: list[int],
        *,
        failures: bool,
    ) -> Lines:
        count = len(offsets)
        missing = (None,) * count
        responses = [value or _Response() for value in columns.get("response", missing)]
        params = [value or _Params() for value in columns.get(PARAMS, missing)]
        details = [value or _Failure() for value in columns.get("failure", missing)]
        texts = SearchedTexts(params, responses)
        tasks = np.array(columns.get(TASK_INDEX, ()), np.int64)
        rollouts = np.array(columns.get(ROLLOUT_INDEX, ()), np.int64)
        if failures:
            flags = [FAILED | FINAL * (value is True) for value in columns.get(FAILURE_TERMINAL, missing)]
        else:
            flags = [MASKED * (value is True) for value in columns.get(MASK, missing)]
        numbers = {"reward": _numbers(missing if failures else columns.get("reward", missing))}
        calls = texts.call_counts()
        numbers |= _measures(columns, responses, details, calls, failures=failures)
        names = _text_columns(columns, params, responses, details, calls, failures=failures)
        self._add_own_fields(columns, numbers, names)
        return Lines(
            keys=(tasks << 32) | rollouts,
            sources=np.full(count, source, np.int32),
            offsets=np.array(offsets, np.int64),
            sizes=np.array(sizes, np.int64),
            output_bytes=np.array(texts.output_sizes, np.int64),
            flags=np.array(flags, np.uint8),
            numbers=numbers,
            texts=names,
            signatures=texts.sign(),
        )

    def _add_own_fields(
        self,
        columns: dict[str, Sequence[Any]],
        numbers: dict[str, NDArray[np.float64]],
        texts: dict[str, list[str | None]],
    ) -> None:
        """Add the fields that authors' records have: those with numbers, and those with short texts."""
        own = [name for name in columns if name not in _FIXED and name not in NAMES and not name.startswith("_ng_")]
        for name in own[:MAX_FIELDS]:
            values = columns[name]
            if self._fields[name] is msgspec.Raw:
                values = [_scalar(value) for value in values]
            kinds = set(map(type, values)) - {msgspec.UnsetType, type(None)}
            if kinds & {int, float, bool}:
                numbers[name] = _numbers(values)
            if str in kinds:
                texts[name] = [
                    printable(value) if isinstance(value, str) and len(value) <= MAX_TEXT else None for value in values
                ]


class SearchedTexts:
    """The JSON text of records that a search covers, one copy of some records at a time."""

    def __init__(self, params: Sequence[_Params], responses: Sequence[_Response]) -> None:
        self._parts: list[tuple[Any, Any, Any]] = [
            (own.instructions, own.input, response.output) for own, response in zip(params, responses, strict=True)
        ]
        self.output_sizes = [memoryview(parts[2]).nbytes for parts in self._parts]
        self._texts = list(map(_GAP.join, self._parts))

    def call_counts(self) -> list[tuple[int | None, int]]:
        """Turns and tool calls of each trajectory."""
        return [
            (1, 0) if size > _EMPTY_LIST and _CALL_START not in text else _count_calls(bytes(parts[2]))
            for text, size, parts in zip(self._texts, self.output_sizes, self._parts, strict=True)
        ]

    def sign(self) -> NDArray[np.uint8]:
        """The signatures, also with the characters that escapes stand for."""
        signatures, escaped = sign_texts(self._texts)
        if escaped:
            decoded, _ = sign_texts([searched(*self._parts[number]) for number in escaped])
            signatures[escaped] |= decoded
        return signatures


_GAP: Final = b"\0"
_ESCAPE: Final = b"\\u"
_CALL_START: Final = b'"function_call'
_EMPTY_LIST: Final = 2
"""The length of a trajectory without items."""


def searched(*parts: Any) -> bytes:
    """The JSON text that a search covers: instructions, input and trajectory, with escaped characters decoded."""
    text = _GAP.join(parts)
    return text if _ESCAPE not in text else encode_json([_ANY.decode(part) for part in parts if bytes(part)])


_SEARCHED: Final = msgspec.json.Decoder(
    msgspec.defstruct(
        "Searched",
        [("params", _Params | None, None), ("response", _Response | None, None)],
        rename={"params": PARAMS},
        gc=False,
    )
)


def searched_of(line: bytes) -> bytes:
    """The JSON text of a line that a search covers, in lower case."""
    try:
        record: Any = _SEARCHED.decode(line)
        params, response = record.params or _Params(), record.response or _Response()
        text = searched(params.instructions, params.input, response.output)
        return text.lower() if text.isascii() else text.decode(errors="replace").lower().encode()
    except (ValueError, RecursionError):
        record = decode_record(line) or {}
        parts = [record.get(PARAMS), record.get("response")]
        inputs = [
            part.get(name) for part, name in zip(parts, ("input", "output"), strict=True) if isinstance(part, dict)
        ]
        return as_text(inputs).lower().encode(errors="replace")


def _text_columns(
    columns: dict[str, Sequence[Any]],
    params: list[_Params],
    responses: list[_Response],
    details: list[_Failure],
    calls: list[tuple[int | None, int]],
    *,
    failures: bool,
) -> dict[str, list[str | None]]:
    missing = (None,) * len(params)
    agents = [value.name if value else None for value in columns.get(AGENT_REF, missing)]
    texts = {"agent": _texts(agents), "model": _texts(list(map(_MODEL, responses)))}
    terminated, truncated = (columns.get(name, missing) for name in _EPISODE)
    is_cut = any(map(_DETAILS, responses)) or True in truncated or any(count for _, count in calls)
    texts["truncated"] = list(map(_truncation, responses, terminated, truncated, calls)) if is_cut else list(missing)
    texts["finish"] = list(map(_finish, responses))
    texts["failure"] = list(missing)
    if failures:
        kinds = map(_first, (detail.kind for detail in details), columns.get(FAILURE_CLASS, missing))
        texts["failure"] = _texts([kind or FailureKind.UNKNOWN.value for kind in kinds])
    for name in _SAMPLING:
        get = attrgetter(name)
        asked, given = list(map(get, params)), list(map(get, responses))
        texts[name] = _texts(given if asked.count(None) == len(asked) else list(map(_first, asked, given)))
    return texts


_MODEL: Final = attrgetter("model")
_DETAILS: Final = attrgetter("incomplete_details")
_COMPLETED_AT: Final = attrgetter("completed_at")


def _measures(
    columns: dict[str, Sequence[Any]],
    responses: list[_Response],
    details: list[_Failure],
    calls: list[tuple[int | None, int]],
    *,
    failures: bool,
) -> dict[str, NDArray[np.float64]]:
    missing = (None,) * len(responses)
    usages = [value or _NO_USAGE for value in columns.get(MODEL_USAGE, missing)]
    tokens = [response.usage or _NO_TOKENS for response in responses]
    if failures:
        seconds = [detail.seconds for detail in details]
        times = [detail.started_at for detail in details]
    else:
        captures = columns.get(CALL_CAPTURE, missing)
        is_timed = any(columns.get(MODEL_USAGE, missing)) or any(captures) or any(map(_COMPLETED_AT, responses))
        seconds = list(map(_model_seconds, usages, captures, responses)) if is_timed else list(missing)
        times = [response.completed_at or response.created_at for response in responses]
    asked = [own.calls for own in usages]
    turns = [turns for turns, _ in calls]
    return {
        "input_tokens": _either(tokens, "input_tokens", "prompt_tokens"),
        "output_tokens": _either(tokens, "output_tokens", "completion_tokens"),
        "total_tokens": _numbers([own.total_tokens for own in tokens]),
        "seconds": _numbers(seconds),
        "calls": _numbers(asked),
        "turns": _numbers(turns if asked.count(None) == len(asked) else list(map(_first, asked, turns))),
        "tool_calls": _numbers([count for _, count in calls]),
        "cost": _numbers([own.cost for own in usages]),
        "at": _numbers(times),
    }


_NO_USAGE: Final = _Usage()
_NO_TOKENS: Final = _Tokens()


def _either(structs: Sequence[Any], name: str, other: str) -> NDArray[np.float64]:
    values = list(map(attrgetter(name), structs))
    if None in values:
        values = list(map(_first, values, map(attrgetter(other), structs)))
    return _numbers(values)


def _count_calls(output: bytes) -> tuple[int | None, int]:
    """Turns and tool calls of a trajectory. Quotes inside of texts are escaped, so they are not counted."""
    if len(output) <= _EMPTY_LIST:
        return None, 0
    return 1 + output.count(_CALL_OUTPUT), output.count(_CALL)


def _model_seconds(usage: _Usage, capture: Any, response: _Response) -> float | None:
    """The seconds that a rollout spent in model calls."""
    if usage.latency_ms is None and capture in (None, msgspec.UNSET) and response.completed_at is None:
        return None
    if isinstance(usage.latency_ms, int | float):
        return usage.latency_ms / 1000
    metrics = capture.metrics if isinstance(capture, _Capture) else None
    total = metrics.get("latency_total_ms") if isinstance(metrics, dict) else None
    if isinstance(total, int | float):
        return total / 1000
    if isinstance(response.completed_at, int | float) and isinstance(response.created_at, int | float):
        return response.completed_at - response.created_at
    return None


def _truncation(response: _Response, terminated: Any, truncated: Any, calls: tuple[int | None, int]) -> str | None:
    reason = truncation_of_reason(response.incomplete_details) if response.incomplete_details else None
    if reason is None and truncated is True:
        reason = truncation_of_episode(terminated, truncated)
    if reason is None and calls[1]:
        reason = truncation_of_output(response.output)
    return reason.value if reason is not None else None


def _finish(response: _Response) -> str | None:
    details = response.incomplete_details
    if details:
        return _text(details.get("reason") if isinstance(details, dict) else details) or "incomplete"
    status = response.status
    if status is not None and status != "completed":
        return _text(status)
    return "stop" if response.output else None


def _numbers(values: Sequence[Any]) -> NDArray[np.float64]:
    """Numbers as an array; NaN for everything else."""
    kinds = set(map(type, values))
    if kinds == {type(None)}:
        return np.full(len(values), math.nan)
    try:
        if kinds <= {int, float, bool}:
            return np.array(values, np.float64)
        return np.array([value if isinstance(value, int | float) else math.nan for value in values], np.float64)
    except OverflowError:
        return np.array([_float(value) for value in values], np.float64)


def _float(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan


def _texts(values: Sequence[Any]) -> list[str | None]:
    """Values as short texts. Most columns have few distinct ones, and each is converted once."""
    try:
        distinct = {value: _text(value) for value in set(values)}
    except TypeError:  # a list or an object
        return list(map(_text, values))
    return [distinct[value] for value in values]


def _text(value: Any) -> str | None:
    if value is None or value is msgspec.UNSET:
        return None
    if isinstance(value, str):
        return printable(value[:MAX_TEXT])
    return printable(as_text(value)[:MAX_TEXT])


def _first(value: Any, other: Any) -> Any:
    """A value, or another one if there is none."""
    return value if value is not None and value is not msgspec.UNSET else other


def _scalar(value: Any) -> Any:
    """The scalar in a raw value, or None."""
    if not isinstance(value, msgspec.Raw):
        return value if isinstance(value, int | float | str) else None
    data = bytes(value)
    if not data or data[:1] in b"{[" or len(data) > 4 * MAX_TEXT:
        return None
    try:
        return _ANY.decode(data)
    except (ValueError, RecursionError):
        return None


def _as_kind(value: Any, kind: Any) -> Any:
    """A decoded value in the form that the struct of lines has."""
    if kind is Any or value is msgspec.UNSET or value is None:
        return value
    if kind is msgspec.Raw or kind is _SCALAR:
        return value if isinstance(value, int | float | str) else None
    struct = kind.__args__[0]
    return _as_struct(value, struct) if isinstance(value, dict) else None


def _as_struct(value: JsonObject, struct: Any) -> Any:
    fields = {}
    for info in msgspec.structs.fields(struct):
        own = value.get(info.name)
        if info.type is msgspec.Raw:
            own = msgspec.Raw(_encode(own)) if own is not None else msgspec.Raw()
        elif info.type == _Tokens | None:
            own = _as_struct(own, _Tokens) if isinstance(own, dict) else None
        fields[info.name] = own
    return struct(**fields)


def _encode(value: Any) -> bytes:
    try:
        return encode_json(value)
    except (TypeError, ValueError, RecursionError):
        return b'"(cannot be shown)"'


def _are_indexes(values: Sequence[Any]) -> bool:
    """Whether all values are indexes of tasks or rollouts."""
    return set(map(type, values)) == {int} and min(values) >= 0 and max(values) < _MAX_INDEX


def _can_be_renamed_to(name: str) -> bool:
    """Whether a field of a struct can have this name in JSON."""
    return not any(character in '\\"' or character < " " for character in name)
