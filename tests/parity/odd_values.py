"""Odd JSON values: rows with fields of other types, tool calls with arguments that a model garbled. Seeded, pure."""

from __future__ import annotations

import json
import random
from typing import Any, Final

from tests.parity.odd_text import mutate_text

_ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 1.5, -0.0, 2**53 + 1, 1e308, 10**18, "", " ", "0", "null", "nan", "true", [], {}),
    *([None], [[]], {"a": None}, "a" * 300, "é", "é", "\u200b", "1.0", ["a", 1], {"": ""}, "٣", "Ａ"),
)
_KEYS: Final = ("x", "", "name", "type", "value", "arguments", "id")


def mutate_value(value: Any, chance: random.Random) -> Any:
    """A value with one thing changed somewhere inside."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        kind = chance.random()
        if kind < 0.12:
            return {name: item for name, item in value.items() if name != key}
        if kind < 0.2:
            return {**value, chance.choice((*_KEYS, key.upper(), key + " ")): value[key]}
        return {**value, key: mutate_value(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        changed = [*value[:at], mutate_value(value[at], chance), *value[at + 1 :]]
        shorter, longer = [*value[:at], *value[at + 1 :]], [*value[:at], value[at], *value[at:]]
        return chance.choices((changed, shorter, longer, value[::-1]), (6, 1.5, 1.5, 1))[0]
    return _change_leaf(value, chance)


def _change_leaf(value: Any, chance: random.Random) -> Any:
    kind = chance.random()
    if isinstance(value, str) and value[:1] in ("{", "[") and kind < 0.5:
        return _change_json(value, chance)
    if isinstance(value, str) and kind < 0.6:
        return mutate_text(value, chance)
    if isinstance(value, bool | None) or kind > 0.8:
        return chance.choice(_ODD)
    if isinstance(value, int | float):
        return chance.choice(
            (value + 1, -value, float(value), str(value), value * 10**12, [value], value + 1e-9, f"{value}.0")
        )
    return chance.choice((str(value), [value], {"value": value}, json.dumps(value)))


def _change_json(text: str, chance: random.Random) -> str:
    """JSON inside of a text, such as a schema or arguments, with one thing changed in it."""
    try:
        value = json.loads(text)
    except ValueError:
        return mutate_text(text, chance)
    return json.dumps(mutate_value(value, chance), ensure_ascii=chance.random() < 0.5)


def mutate_arguments(text: str, chance: random.Random) -> str:
    """The arguments of a tool call: duplicated, missing or additional ones, other types, damaged JSON."""
    try:
        arguments = json.loads(text)
    except ValueError:
        return mutate_text(text, chance)
    kind = chance.random()
    if kind < 0.55 or not isinstance(arguments, dict) or not arguments:
        return json.dumps(mutate_value(arguments, chance), ensure_ascii=chance.random() < 0.5)
    key = chance.choice(list(arguments))
    if kind < 0.7:  # the same key twice
        again = json.dumps({key: mutate_value(arguments[key], chance)})
        return chance.choice((text.rstrip()[:-1] + ", " + again[1:], again[:-1] + ", " + text.lstrip()[1:]))
    return chance.choice(
        (
            json.dumps(text),
            json.dumps(json.dumps(arguments)),
            json.dumps([arguments]),
            json.dumps({"arguments": arguments}),
            json.dumps({"parameters": arguments}),
            json.dumps({**arguments, key: float("nan")}),
            json.dumps({**arguments, key: float("inf")}),
            json.dumps(arguments, indent=2),
            json.dumps(dict(reversed(arguments.items()))),
            f" {text}\n",
            f"\ufeff{text}",
            text[: chance.randint(0, len(text))],
            f"```json\n{text}\n```",
            str(arguments),
            "",
            "null",
            mutate_text(text, chance),
        )
    )
