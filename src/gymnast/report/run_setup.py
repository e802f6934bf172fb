"""How a run was made, from its records: models, sampling parameters, durations, and when.

One pass over the scored records decodes only these few fields. Each has several places: those of Gymnast, of NeMo Gym,
and those that agents and environments use.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.report.transcript_items import as_text, decode_record
from gymnast.types.task import PARAMS
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.profile.table import Floats, RolloutTable
    from gymnast.store.records import RecordFile

SECONDS_FIELDS: Final = (
    *("seconds", "rollout_seconds", "duration_s", "duration_seconds", "duration", "elapsed_s", "elapsed_seconds"),
    *("elapsed", "wall_time_s", "wall_time", "latency_s", "time_taken", "total_time", "rollout_time"),
)
MILLISECONDS_FIELDS: Final = (
    "duration_ms",
    "elapsed_ms",
    "wall_time_ms",
    "rollout_ms",
    "latency_ms",
    "latency_total_ms",
)
"""Names that environments and agents use for the duration of a rollout; the contract defines none."""
IN_MODEL_CALLS: Final = "in model calls"
_SAMPLING: Final = ("temperature", "top_p", "max_output_tokens", "reasoning")
_MAX_VALUES: Final = 50


class _Params(msgspec.Struct):
    temperature: Any = None
    top_p: Any = None
    max_output_tokens: Any = None
    reasoning: Any = None


class _Response(msgspec.Struct):
    model: Any = None
    temperature: Any = None
    top_p: Any = None
    max_output_tokens: Any = None
    reasoning: Any = None
    created_at: Any = None
    completed_at: Any = None


class _Usage(msgspec.Struct):
    latency_ms: Any = None


class _Capture(msgspec.Struct):
    metrics: Any = None


class _Record(msgspec.Struct):
    params: _Params | None = msgspec.field(name=PARAMS, default=None)
    response: _Response | None = None
    usage: _Usage | None = msgspec.field(name=MODEL_USAGE, default=None)
    capture: _Capture | None = msgspec.field(name=CALL_CAPTURE, default=None)


_DECODER: Final = msgspec.json.Decoder(_Record)


@dataclass(slots=True)
class RunSetup:
    """What the records of a run say about how it was made."""

    models: Counter[str] = field(default_factory=Counter)
    """Rollouts by the model that answered."""
    sampling: dict[str, Counter[str]] = field(default_factory=dict)
    """Rollouts by the value of each sampling parameter: the requested one, else the one the response reports."""
    started_at: float | None = None
    """When the first response was created."""
    ended_at: float | None = None
    seconds: Floats = field(default_factory=lambda: np.empty(0))
    """The duration of each scored rollout, in the order of the run's table; NaN where unknown."""
    seconds_source: str | None = None
    """The field that has the durations, or `IN_MODEL_CALLS`; None if records have none."""


def read_setup(records: RecordFile, table: RolloutTable) -> RunSetup:
    """Read the setup from the scored records. `table`: the run's table, whose offsets refer to them."""
    setup, offsets, durations = RunSetup(), [], []
    offset = 0
    with records.open() as stream:
        for line in stream:
            if not line.isspace():
                record = _decode(line)
                _add_record(setup, record)
                offsets.append(offset)
                durations.append(_model_seconds(record))
            offset += len(line)
    rows = np.searchsorted(np.asarray(offsets, np.int64), table.offsets)
    setup.seconds, setup.seconds_source = _durations(table, np.asarray(durations, np.float64)[rows])
    return setup


def _decode(line: bytes) -> _Record:
    """The few fields of a line. Records of an unusual form are decoded the slow way."""
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        record = decode_record(line) or {}
        return _Record(
            params=_convert(record.get(PARAMS), _Params),
            response=_convert(record.get("response"), _Response),
            usage=_convert(record.get(MODEL_USAGE), _Usage),
            capture=_convert(record.get(CALL_CAPTURE), _Capture),
        )


def _convert(value: Any, kind: Any) -> Any:
    return msgspec.convert(value, kind) if isinstance(value, dict) else None


def _add_record(setup: RunSetup, record: _Record) -> None:
    params, response = record.params or _Params(), record.response or _Response()
    if response.model:
        _count(setup.models, as_text(response.model))
    for name in _SAMPLING:
        requested = getattr(params, name)
        value = requested if requested is not None else getattr(response, name)
        if value is not None:
            _count(setup.sampling.setdefault(name, Counter()), as_text(value))
    created = _number(response.created_at)
    if math.isfinite(created) and created > 0:
        setup.started_at = created if setup.started_at is None else min(created, setup.started_at)
        setup.ended_at = created if setup.ended_at is None else max(created, setup.ended_at)


def _count(counter: Counter[str], value: str) -> None:
    """Count a value; values beyond the first few distinct ones are counted together."""
    counter[value if value in counter or len(counter) < _MAX_VALUES else "other values"] += 1


def _model_seconds(record: _Record) -> float:
    """The seconds that a rollout spent in model calls."""
    if record.usage is not None and math.isfinite(latency_ms := _number(record.usage.latency_ms)):
        return latency_ms / 1000
    metrics = record.capture.metrics if record.capture is not None else None
    if isinstance(metrics, dict) and math.isfinite(latency_ms := _number(metrics.get("latency_total_ms"))):
        return latency_ms / 1000
    if record.response is not None:
        return _number(record.response.completed_at) - _number(record.response.created_at)
    return math.nan


def _durations(table: RolloutTable, in_model_calls: Floats) -> tuple[Floats, str | None]:
    """The durations of whole rollouts if records have them, else those of their model calls, and their source."""
    for names, unit in ((SECONDS_FIELDS, 1.0), (MILLISECONDS_FIELDS, 1e-3)):
        for name in names:
            column = table.columns.get(name)
            if column is not None and not column.from_usage and np.isfinite(column.values).any():
                return column.values * unit, name
    return in_model_calls, IN_MODEL_CALLS if np.isfinite(in_model_calls).any() else None


def total_seconds(record: Mapping[str, Any], source: str | None) -> float | None:
    """The duration of a decoded record, from the place that the whole run uses."""
    if source is None:
        return None
    if source == IN_MODEL_CALLS:
        parts = (record.get(PARAMS), record.get("response"), record.get(MODEL_USAGE), record.get(CALL_CAPTURE))
        kinds = (_Params, _Response, _Usage, _Capture)
        seconds = _model_seconds(_Record(*(_convert(part, kind) for part, kind in zip(parts, kinds, strict=True))))
    else:
        seconds = _number(record.get(source)) * (1e-3 if source in MILLISECONDS_FIELDS else 1.0)
    return round(seconds, 3) if math.isfinite(seconds) else None


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
