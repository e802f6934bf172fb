"""Records without what differs between any two runs: times, and ids that a server generated.

Enabled with `reproducible_records: true`. The same responses then give the same bytes, wherever a rollout ran. Only
fields that Gymnast and model servers write are changed, never an author's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

SETTING: Final = "reproducible_records"
_CHANGED_FIELDS: Final = ("response", MODEL_USAGE, CALL_CAPTURE, "ng_trajectory", "ng_agent_observations")
_TIMES: Final = re.compile(
    r"(?:.*_)?(?:created|started|completed|ended)_at|(?:.*_)?(?:latency|ttft)(?:_.*)?_ms|seconds"
)
_IDS: Final = frozenset({"id", "call_id", "model_call_id", "response_id", "item_id"})
_PREFIX: Final = re.compile(r"[A-Za-z]+[_-]")


def make_reproducible(line: bytes) -> bytes:
    """The same record with times set to 0 and ids numbered in order of appearance."""
    record: JsonObject = orjson.loads(line)
    names: dict[str, str] = {}
    for key in _CHANGED_FIELDS:
        if key in record:
            record[key] = _clear_times(record[key], names)
    return orjson.dumps(_rename(record, names) if names else record)


def _clear_times(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_clear_times(child, names) for child in value]
    if not isinstance(value, dict):
        return value
    cleared: JsonObject = {}
    for key, child in value.items():
        if key in _IDS and isinstance(child, str) and child not in names:
            prefix = _PREFIX.match(child)
            names[child] = f"{prefix[0] if prefix else 'id_'}{len(names)}"
        is_time = isinstance(child, (int, float)) and _TIMES.fullmatch(key) is not None
        cleared[key] = 0 if is_time else _clear_times(child, names)
    return cleared


def _rename(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _rename(child, names) for key, child in value.items()}
    if isinstance(value, list):
        return [_rename(child, names) for child in value]
    return names.get(value, value) if isinstance(value, str) else value
