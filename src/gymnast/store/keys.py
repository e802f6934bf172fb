"""Which rollout a line of a run's files belongs to, found at the line's end without parsing the whole line."""

from __future__ import annotations

from typing import Final

import orjson

from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX, RolloutKey, key_of

_TASK: Final = f'"{TASK_INDEX}":'.encode()
_ROLLOUT: Final = f'"{ROLLOUT_INDEX}":'.encode()
_LONGEST_TAIL: Final = 4096


def key_of_line(line: bytes) -> RolloutKey | None:
    """The key of a record or of a materialized input, or None if the line has none or is not JSON.

    Our writers put the identity last, so what follows the task index is short. It is parsed as the rest of an object,
    which also proves that the index stands at the top level. Any other line is parsed whole.
    """
    start = line.rfind(_TASK)
    if start > 0 and len(line) - start < _LONGEST_TAIL and line[start - 1 : start] in (b",", b"{"):
        try:
            rest = orjson.loads(b"{" + line[start:])
        except orjson.JSONDecodeError:
            return _parsed(line)
        found = key_of(rest)
        return found if found is not None else _parsed(line)
    return _parsed(line)


def looks_whole(line: bytes) -> bool:
    """Whether a line can be a record at all: an object from its first byte to its last, without holes of zeros."""
    return line[:1] == b"{" and line[-1:] == b"}" and b"\0" not in line


def _parsed(line: bytes) -> RolloutKey | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return key_of(row) if isinstance(row, dict) else None
