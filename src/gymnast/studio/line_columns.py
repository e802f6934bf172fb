"""Lines of a run's files as columns: what tables show, sort and filter by."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.studio.column_values import as_numbers, as_texts, either, first_known, is_constant, scalar_of, text_of
from gymnast.studio.record_structs import FIXED_FIELDS, Capture, Failure, Params, Response, Tokens, Usage
from gymnast.studio.searched_text import SearchedTexts
from gymnast.types.encoding import printable
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
from gymnast.types.truncation import truncation_of_episode, truncation_of_output, truncation_of_reason
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from gymnast.studio.line_files import Batch
    from gymnast.studio.text_signature import Signer

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    TextLists = dict[str, list[str | None]]

MAX_TEXT: Final = 60
"""Longer texts of records are shown, but not sorted or filtered by."""
MAX_FIELDS: Final = 60
"""Fields of records, besides the built-in ones, that are indexed."""
FAILED: Final = 1
FINAL: Final = 2
MASKED: Final = 4
ESCAPED: Final = 8
"""The searched text has characters that are escaped as numbers."""
_SAMPLING: Final = ("temperature", "top_p", "max_output_tokens", "reasoning")
_EPISODE: Final = ("terminated", "truncated")
NUMBERS: Final = (
    *("reward", "input_tokens", "output_tokens", "total_tokens", "seconds", "calls", "turns", "tool_calls"),
    *("cost", "at"),
)
TEXTS: Final = ("agent", "model", "truncated", "finish", "failure", *_SAMPLING)
NAMES: Final = frozenset({*NUMBERS, *TEXTS})
"""Built-in columns. A field of a record with the same name is not a column of its own."""
_ANSWERS: Final = Response.__struct_fields__
_NO_PARAMS: Final = Params()
_NO_RESPONSE: Final = Response()
_NO_FAILURE: Final = Failure()
_NO_USAGE: Final = Usage()
_NO_TOKENS: Final = Tokens()
FIXED_COLUMNS: Final = ("keys", "sources", "offsets", "sizes", "output_bytes", "flags")
"""Those that every line has."""


@dataclass(slots=True)
class Lines:
    """The records in some lines, in columns."""

    keys: Ints
    """Packed keys."""
    sources: NDArray[np.int32]
    offsets: Ints
    sizes: Ints
    """The length of each line."""
    output_bytes: Ints
    flags: NDArray[np.uint8]
    """Bits: FAILED, FINAL, MASKED, ESCAPED."""
    numbers: dict[str, Floats]
    """NaN where a record has no number."""
    texts: TextLists
    signatures: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 0), np.uint8))

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Places:
    """Where lines are: the number of their file, and the offset and size of each."""

    source: int
    offsets: Ints
    sizes: Ints


def make_lines(
    columns: dict[str, Sequence[Any]],
    places: Places,
    whole: Batch | None,
    raw: Collection[str],
    signer: Signer,
    *,
    failures: bool,
) -> Lines:
    """The columns of decoded lines; `whole`: the lines, if all are here; `raw`: the fields that are not decoded yet."""
    count = len(places.offsets)
    records = _Records(columns, count, whole, signer, is_failure=failures)
    tasks = np.array(columns.get(TASK_INDEX, ()), np.int64)
    rollouts = np.array(columns.get(ROLLOUT_INDEX, ()), np.int64)
    numbers, texts = records.numbers(), records.texts()
    _add_own_fields(columns, raw, numbers, texts)
    return Lines(
        keys=(tasks << 32) | rollouts,
        sources=np.full(count, places.source, np.int32),
        offsets=places.offsets,
        sizes=places.sizes,
        output_bytes=np.array(records.searched.output_sizes, np.int64),
        flags=records.flags(),
        numbers=numbers,
        texts=texts,
        signatures=records.searched.signatures,
    )


class _Records:
    """Decoded lines, for the built-in columns."""

    def __init__(
        self,
        columns: dict[str, Sequence[Any]],
        count: int,
        whole: Batch | None,
        signer: Signer,
        *,
        is_failure: bool,
    ) -> None:
        self._columns = columns
        self._missing = (None,) * count
        self._is_failure = is_failure
        self._params: list[Params] = [own or _NO_PARAMS for own in self._field(PARAMS)]
        self._responses: list[Response] = [own or _NO_RESPONSE for own in self._field("response")]
        answers = zip(*map(msgspec.structs.astuple, self._responses), strict=True) if count else [()] * len(_ANSWERS)
        self._answers = dict(zip(_ANSWERS, map(list, answers), strict=True))
        self._failures: list[Failure] = [own or _NO_FAILURE for own in self._field("failure")] if is_failure else []
        self.searched = SearchedTexts(self._params, self._responses, whole, signer)
        self._turns, self._calls = self.searched.count_calls()

    def _field(self, name: str) -> Sequence[Any]:
        return self._columns.get(name, self._missing)

    def _answer_field(self, name: str) -> list[Any]:
        return self._answers[name]

    def flags(self) -> NDArray[np.uint8]:
        """FAILED, FINAL, MASKED and ESCAPED."""
        if self._is_failure:
            flags = [FAILED | FINAL * (value is True) for value in self._field(FAILURE_TERMINAL)]
        else:
            flags = [MASKED * (value is True) for value in self._field(MASK)]
        result = np.array(flags, np.uint8)
        result[self.searched.escaped] |= ESCAPED
        return result

    def numbers(self) -> dict[str, Floats]:
        """The built-in columns with numbers."""
        tokens = [usage or _NO_TOKENS for usage in self._answer_field("usage")]
        usages = [value or _NO_USAGE for value in self._field(MODEL_USAGE)]
        calls = [own.calls for own in usages]
        is_counted = calls.count(None) < len(calls)
        return {
            "reward": as_numbers(self._missing if self._is_failure else self._field("reward")),
            "input_tokens": either(tokens, "input_tokens", "prompt_tokens"),
            "output_tokens": either(tokens, "output_tokens", "completion_tokens"),
            "total_tokens": as_numbers([own.total_tokens for own in tokens]),
            "seconds": as_numbers(self._seconds(usages)),
            "calls": as_numbers(calls),
            "turns": as_numbers(list(map(first_known, calls, self._turns)) if is_counted else self._turns),
            "tool_calls": np.array(self._calls, np.float64),
            "cost": as_numbers([own.cost for own in usages]),
            "at": as_numbers(self._times()),
        }

    def _seconds(self, usages: list[Usage]) -> Sequence[Any]:
        if self._is_failure:
            return [failure.seconds for failure in self._failures]
        captures = self._field(CALL_CAPTURE)
        is_timed = any(self._field(MODEL_USAGE)) or any(captures) or any(self._answer_field("completed_at"))
        return list(map(_model_seconds, usages, captures, self._responses)) if is_timed else self._missing

    def _times(self) -> Sequence[Any]:
        if self._is_failure:
            return [failure.started_at for failure in self._failures]
        completed, created = map(self._answer_field, ("completed_at", "created_at"))
        return [own or other for own, other in zip(completed, created, strict=True)]

    def texts(self) -> TextLists:
        """The built-in columns with texts."""
        agents = [value.name if value else None for value in self._field(AGENT_REF)]
        details = self._answer_field("incomplete_details")
        texts = {
            "agent": as_texts(agents, MAX_TEXT),
            "model": as_texts(self._answer_field("model"), MAX_TEXT),
            "truncated": self._truncations(details),
            "finish": self._finishes(details),
            "failure": self._kinds(),
        }
        for name in _SAMPLING:
            params, reported = list(map(attrgetter(name), self._params)), self._answer_field(name)
            has_params = params.count(None) < len(params)
            texts[name] = as_texts(list(map(first_known, params, reported)) if has_params else reported, MAX_TEXT)
        return texts

    def _truncations(self, details: list[Any]) -> list[str | None]:
        terminated, truncated = map(self._field, _EPISODE)
        if not (any(details) or True in truncated or any(self._calls)):
            return list(self._missing)
        rows = zip(details, self._responses, terminated, truncated, self._calls, strict=True)
        return [_truncation(*row) if detail or row[2] is True or row[3] else None for detail, *row in rows]

    def _finishes(self, details: list[Any]) -> list[str | None]:
        statuses = self._answer_field("status")
        is_plain = is_constant(details) and details[:1] == [None] and is_constant(statuses)
        if is_plain and statuses[:1] in ([None], ["completed"]):
            return ["stop" if size else None for size in self.searched.output_sizes]
        return list(map(_finish, self._responses))

    def _kinds(self) -> list[str | None]:
        if not self._is_failure:
            return list(self._missing)
        kinds = map(first_known, (own.kind for own in self._failures), self._field(FAILURE_CLASS))
        return as_texts([kind or FailureKind.UNKNOWN.value for kind in kinds], MAX_TEXT)


def _model_seconds(usage: Usage, capture: Any, response: Response) -> float | None:
    """The seconds that a rollout spent in model calls."""
    if usage.latency_ms is None and capture in (None, msgspec.UNSET) and response.completed_at is None:
        return None
    if isinstance(usage.latency_ms, int | float):
        return usage.latency_ms / 1000
    metrics = capture.metrics if isinstance(capture, Capture) else None
    total = metrics.get("latency_total_ms") if isinstance(metrics, dict) else None
    if isinstance(total, int | float):
        return total / 1000
    if isinstance(response.completed_at, int | float) and isinstance(response.created_at, int | float):
        return response.completed_at - response.created_at
    return None


def _truncation(response: Response, terminated: Any, truncated: Any, calls: int) -> str | None:
    reason = truncation_of_reason(response.incomplete_details) if response.incomplete_details else None
    if reason is None and truncated is True:
        reason = truncation_of_episode(terminated, truncated)
    if reason is None and calls:
        reason = truncation_of_output(response.output)
    return reason.value if reason is not None else None


def _finish(response: Response) -> str | None:
    details = response.incomplete_details
    if details:
        reason = details.get("reason") if isinstance(details, dict) else details
        return text_of(reason, MAX_TEXT) or "incomplete"
    status = response.status
    if status is not None and status != "completed":
        return text_of(status, MAX_TEXT)
    return "stop" if response.output else None


def _add_own_fields(
    columns: dict[str, Sequence[Any]], raw: Collection[str], numbers: dict[str, Floats], texts: TextLists
) -> None:
    """Add the fields that authors' records have: those with numbers, and those with short texts."""
    own = [name for name in columns if name not in FIXED_FIELDS and name not in NAMES and not name.startswith("_ng_")]
    for name in own[:MAX_FIELDS]:
        values = columns[name]
        if name in raw:
            values = [scalar_of(value, 4 * MAX_TEXT) for value in values]
        kinds = set(map(type, values)) - {msgspec.UnsetType, type(None)}
        if kinds & {int, float, bool}:
            numbers[name] = as_numbers(values)
        if str in kinds:
            texts[name] = [
                printable(value) if isinstance(value, str) and len(value) <= MAX_TEXT else None for value in values
            ]


def join_lines(parts: Sequence[Lines]) -> Lines:
    """Lines one after the other. A field that some parts do not have is empty there."""
    sizes = [len(part) for part in parts]
    numbers = {name: None for part in parts for name in part.numbers}
    texts = {name: None for part in parts for name in part.texts}

    def gaps(size: int) -> NDArray[np.float64]:
        return np.full(size, np.nan)

    return Lines(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in FIXED_COLUMNS},
        numbers={
            name: np.concatenate([part.numbers.get(name, gaps(size)) for part, size in zip(parts, sizes, strict=True)])
            for name in numbers
        },
        texts={
            name: [
                text for part, size in zip(parts, sizes, strict=True) for text in part.texts.get(name, [None] * size)
            ]
            for name in texts
        },
        signatures=np.concatenate([part.signatures for part in parts]),
    )
