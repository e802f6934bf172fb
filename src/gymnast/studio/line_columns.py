"""Lines of a run's files as columns: what tables show, sort and filter by, and the text that a search covers.

One decode per line, into a struct made for the fields of this run. A line of an unusual form (lone surrogates, deep
nesting, fields with another type) is decoded the slow way; one that is no record of a rollout is skipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
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
        names, kept = list(self._fields), []
        rows: list[tuple[Any, ...]] = []
        for number, line in enumerate(lines):
            values = self._decode(line)
            if values is None:
                self.skipped += 1
                continue
            if len(self._fields) > len(names):  # rows before have no value in the new fields
                new = [msgspec.UNSET] * (len(self._fields) - len(names))
                rows = [(*row, *new) for row in rows]
                names = list(self._fields)
            rows.append(values)
            kept.append(number)
        columns: dict[str, Sequence[Any]] = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
        return self._build(
            columns, source, [offsets[n] for n in kept], [len(lines[n]) for n in kept], failures=failures
        )

    # --- decoding ----------------------------------------------------------------------------------------------------

    def _decode(self, line: bytes) -> tuple[Any, ...] | None:
        if self._decoder is None:
            self._extend(line)
        values = None
        try:
            if self._decoder is not None:
                values = msgspec.structs.astuple(self._decoder.decode(line))
        except msgspec.ValidationError:
            if self._extend(line):
                return self._decode(line)
        except (ValueError, RecursionError):
            pass
        if values is None:
            values = self._decode_slowly(line)
        return values if values is not None and _is_index(values[0]) and _is_index(values[1]) else None

    def _extend(self, line: bytes) -> bool:
        """Add the fields of this line. False if it has no new ones, so that something else is unusual."""
        try:
            fields = _RAW_FIELDS.decode(line)
        except (ValueError, RecursionError):
            fields = {}
        has_odd_names = not all(map(_can_be_renamed_to, fields))
        kinds = {name: bytes(memoryview(raw)[:1]) not in (b"{", b"[") for name, raw in fields.items()}
        return self._add_fields(kinds) and not has_odd_names

    def _add_fields(self, kinds: dict[str, bool]) -> bool:
        """Add fields, each with whether it is a scalar. False if none is new."""
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
        return bool(new)

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
        outputs = [bytes(response.output) for response in responses]
        details = [value or _Failure() for value in columns.get("failure", missing)]
        tasks = np.array(columns.get(TASK_INDEX, ()), np.int64)
        rollouts = np.array(columns.get(ROLLOUT_INDEX, ()), np.int64)
        rewards = columns.get("reward", missing)
        if failures:
            rewards = missing
            flags = [FAILED | FINAL * (value is True) for value in columns.get(FAILURE_TERMINAL, missing)]
        else:
            flags = [MASKED * (value is True) for value in columns.get(MASK, missing)]
        numbers = {"reward": _numbers(rewards)}
        numbers |= _measures(columns, responses, details, outputs, failures=failures)
        texts = self._text_columns(columns, params, responses, outputs, details, failures=failures)
        self._add_own_fields(columns, numbers, texts)
        return Lines(
            keys=(tasks << 32) | rollouts,
            sources=np.full(count, source, np.int32),
            offsets=np.array(offsets, np.int64),
            sizes=np.array(sizes, np.int64),
            output_bytes=np.array([len(output) for output in outputs], np.int64),
            flags=np.array(flags, np.uint8),
            numbers=numbers,
            texts=texts,
            signatures=sign_texts([searched(own, output) for own, output in zip(params, outputs, strict=True)]),
        )

    def _text_columns(
        self,
        columns: dict[str, Sequence[Any]],
        params: list[_Params],
        responses: list[_Response],
        outputs: list[bytes],
        details: list[_Failure],
        *,
        failures: bool,
    ) -> dict[str, list[str | None]]:
        count = len(params)
        missing = (None,) * count
        texts: dict[str, list[str | None]] = {
            "agent": [_text(value.name) if value else None for value in columns.get(AGENT_REF, missing)],
            "model": [_text(response.model) for response in responses],
        }
        episodes = zip(*(columns.get(name, missing) for name in _EPISODE), strict=True)
        texts["truncated"] = [
            _truncation(response, output, *episode)
            for response, output, episode in zip(responses, outputs, episodes, strict=True)
        ]
        texts["finish"] = [_finish(response) for response in responses]
        classes = columns.get(FAILURE_CLASS, missing)
        texts["failure"] = (
            [
                _text(detail.kind or (kind if kind is not msgspec.UNSET else None)) or FailureKind.UNKNOWN.value
                for detail, kind in zip(details, classes, strict=True)
            ]
            if failures
            else [None] * count
        )
        for name in _SAMPLING:
            texts[name] = [
                _text(own if (own := getattr(asked, name)) is not None else getattr(response, name))
                for asked, response in zip(params, responses, strict=True)
            ]
        return texts

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


def searched(params: _Params, output: bytes) -> bytes:
    """The JSON text that a search covers: prompt and trajectory. Escaped characters are decoded where there are any."""
    text = b"\0".join((bytes(params.instructions), bytes(params.input), output))
    if b"\\u" in text:
        values = [_ANY.decode(part) for part in (params.instructions, params.input, output) if bytes(part)]
        return encode_json(values)
    return text


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
        params, output = record.params or _Params(), bytes(record.response.output) if record.response else b""
        text = searched(params, output)
        return text.lower() if text.isascii() else text.decode(errors="replace").lower().encode()
    except (ValueError, RecursionError):
        record = decode_record(line) or {}
        parts = [record.get(PARAMS), record.get("response")]
        inputs = [
            part.get(name) for part, name in zip(parts, ("input", "output"), strict=True) if isinstance(part, dict)
        ]
        return as_text(inputs).lower().encode(errors="replace")


def _measures(
    columns: dict[str, Sequence[Any]],
    responses: list[_Response],
    details: list[_Failure],
    outputs: list[bytes],
    *,
    failures: bool,
) -> dict[str, NDArray[np.float64]]:
    missing = (None,) * len(responses)
    usages = [value or _Usage() for value in columns.get(MODEL_USAGE, missing)]
    captures = columns.get(CALL_CAPTURE, missing)
    tokens = [response.usage or _Tokens() for response in responses]
    calls = [_call_counts(output) for output in outputs]
    if failures:
        seconds = [detail.seconds for detail in details]
        times = [detail.started_at for detail in details]
    else:
        triples = zip(usages, captures, responses, strict=True)
        seconds = [_model_seconds(usage, capture or None, response) for usage, capture, response in triples]
        times = [response.completed_at or response.created_at for response in responses]
    return {
        "input_tokens": _numbers([_first(own.input_tokens, own.prompt_tokens) for own in tokens]),
        "output_tokens": _numbers([_first(own.output_tokens, own.completion_tokens) for own in tokens]),
        "total_tokens": _numbers([own.total_tokens for own in tokens]),
        "seconds": _numbers(seconds),
        "calls": _numbers([usage.calls for usage in usages]),
        "turns": _numbers([_first(usage.calls, turns) for usage, (turns, _) in zip(usages, calls, strict=True)]),
        "tool_calls": _numbers([count for _, count in calls]),
        "cost": _numbers([usage.cost for usage in usages]),
        "at": _numbers(times),
    }


def _call_counts(output: bytes) -> tuple[int | None, int]:
    """Turns and tool calls of a trajectory. Quotes inside of texts are escaped, so they are not counted."""
    if len(output) <= 2:
        return None, 0
    if b'"function_call' not in output:
        return 1, 0
    return 1 + output.count(_CALL_OUTPUT), output.count(_CALL)


def _model_seconds(usage: _Usage, capture: _Capture | None, response: _Response) -> float | None:
    """The seconds that a rollout spent in model calls."""
    if isinstance(usage.latency_ms, int | float):
        return usage.latency_ms / 1000
    metrics = capture.metrics if isinstance(capture, _Capture) else None
    total = metrics.get("latency_total_ms") if isinstance(metrics, dict) else None
    if isinstance(total, int | float):
        return total / 1000
    if isinstance(response.completed_at, int | float) and isinstance(response.created_at, int | float):
        return response.completed_at - response.created_at
    return None


def _truncation(response: _Response, output: bytes, terminated: Any, truncated: Any) -> str | None:
    if response.incomplete_details or truncated is True:
        reason = truncation_of_reason(response.incomplete_details) or truncation_of_episode(terminated, truncated)
        if reason is not None:
            return reason.value
    reason = truncation_of_output(output) if _CALL_OUTPUT in output else None
    return reason.value if reason is not None else None


def _finish(response: _Response) -> str | None:
    details = response.incomplete_details
    if details:
        return _text(details.get("reason") if isinstance(details, dict) else details) or "incomplete"
    return "stop" if response.status in ("completed", None) and bytes(response.output) else _text(response.status)


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


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return printable(value[:MAX_TEXT])
    return printable(as_text(value)[:MAX_TEXT])


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


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


def _is_index(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_INDEX


def _can_be_renamed_to(name: str) -> bool:
    """Whether a field of a struct can have this name in JSON."""
    return not any(character in '\\"' or character < " " for character in name)
