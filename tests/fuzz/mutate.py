"""Mutations of inputs: of bytes, and of JSON values inside them. Seeded."""

from __future__ import annotations

import random
import re
from typing import Any, Final

import orjson

_ODD: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 2**63, 1e308, -0.0, "", "\u0000", "\ufffd", "a" * 5000, "${a}", "${oc.env:HOME}", "null"),
    *([], {}, [[]], {"": {}}, [None], {"type": "x"}, "data: [DONE]", "\x1b[31m", "{", '"', "٣", "1e999"),
)
_BYTES: Final = (b"\xff\xfe", b"\xed\xa0\x80", b"\0", b'"', b"{", b"]", b"\\u", b"\\ud800", b"NaN", b"1" * 40, b"\n")
_DEEP: Final = b"[" * 600 + b"]" * 600
_JSON: Final = re.compile(rb"\{.*\}", re.DOTALL)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A changed copy."""
    for _ in range(chance.randint(1, 3)):
        data = chance.choice((_change_json, _change_json, _change_bytes))(data, chance)
    return data


def _change_bytes(data: bytes, chance: random.Random) -> bytes:
    at = chance.randint(0, len(data))
    to = min(len(data), at + chance.choice((0, 0, 1, 4, 50)))
    kind = chance.random()
    if kind < 0.5:
        return data[:at] + chance.choice(_BYTES) + data[to:]
    if kind < 0.7:
        return data[:at] + data[to:]
    if kind < 0.8:
        return data[:at] + _DEEP + data[to:]
    return data[:to] + data[at:]


def _change_json(data: bytes, chance: random.Random) -> bytes:
    """Change a value somewhere in a JSON object of the input; its bytes if there is none."""
    lines = data.splitlines(keepends=True) or [b""]
    number = chance.randrange(len(lines))
    match = _JSON.search(lines[number])
    try:
        value = orjson.loads(match[0]) if match is not None else None
    except orjson.JSONDecodeError:
        value = None
    if match is None or not isinstance(value, dict):
        return _change_bytes(data, chance)
    try:
        changed = orjson.dumps(_change_value(value, chance))
    except TypeError:
        return data
    lines[number] = lines[number][: match.start()] + changed + lines[number][match.end() :]
    return b"".join(lines)


def _change_value(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        kind = chance.random()
        if kind < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if kind < 0.2:
            return {**value, chance.choice(("x", "", "type", "content", key + "\n")): value[key]}
        return {**value, key: _change_value(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        index = chance.randrange(len(value))
        return [*value[:index], _change_value(value[index], chance), *value[index + 1 :]]
    return chance.choice(_ODD)
