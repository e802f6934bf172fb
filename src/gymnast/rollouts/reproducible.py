"""Records without what no two runs have in common: times, and ids that a server made up.

Asked for with `reproducible_records: true`. A policy that says the same then leaves the same bytes, wherever a rollout
was tried. Only what Gymnast and model servers write is touched; an author's own fields stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

SETTING: Final = "reproducible_records"
_OURS: Final = ("response", MODEL_USAGE, CALL_CAPTURE, "ng_trajectory", "ng_agent_observations")
_TIMES: Final = re.compile(
    r"(?:.*_)?(?:created|started|completed|ended)_at|(?:.*_)?(?:latency|ttft)(?:_.*)?_ms|seconds"
)
_IDS: Final = frozenset({"id", "call_id", "model_call_id", "response_id", "item_id"})
_PREFIX: Final = re.compile(r"[A-Za-z]+[_-]")


def reproducible(line: bytes) -> bytes:
    """The same record with times as 0 and ids numbered in the order in which they come."""
    record: JsonObject = orjson.loads(line)
    names: dict[str, str] = {}
    for key in _OURS:
        if key in record:
            record[key] = _timeless(record[key], names)
    return orjson.dumps(_renamed(record, names) if names else record)


def _timeless(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_timeless(child, names) for child in value]
    if not isinstance(value, dict):
        return value
    found: JsonObject = {}
    for key, child in value.items():
        if key in _IDS and isinstance(child, str) and child not in names:
            prefix = _PREFIX.match(child)
            names[child] = f"{prefix[0] if prefix else 'id_'}{len(names)}"
        is_time = isinstance(child, (int, float)) and _TIMES.fullmatch(key) is not None
        found[key] = 0 if is_time else _timeless(child, names)
    return found


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(child, names) for key, child in value.items()}
    if isinstance(value, list):
        return [_renamed(child, names) for child in value]
    return names.get(value, value) if isinstance(value, str) else value
