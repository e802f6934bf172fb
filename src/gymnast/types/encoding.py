"""JSON for values from authors and models, which may hold what JSON or our encoder cannot.

A value that has a JSON form is kept in the nearest form that every reader understands, and `alterations` names it:
integers beyond 64 bits become text, lone surrogates become U+FFFD, and what is nested too deeply is replaced by a note.
A value without a JSON form (an object, a set) is a TypeError: that is a mistake in its author's code.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeGuard

import orjson

MAX_DEPTH: Final = 200
"""Levels of nesting that are kept. The encoder refuses more than 254."""
MAX_COUNT: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps."""
MAX_ALTERATIONS: Final = 10
"""Alterations that are named; the rest is only made."""
_MIN_INTEGER: Final = -(2**63)
_MAX_INTEGER: Final = 2**64 - 1
_MAX_DECIMAL_BITS: Final = 4096
"""Longer integers are written in hexadecimal: Python limits the decimal digits it converts."""
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS: Final = b"0" * 19
_MAX_DIGITS: Final = 21
_TOO_DEEP: Final = f"… (nested more than {MAX_DEPTH} levels deep)"


def encode_json(value: Any) -> bytes:
    """JSON text. Raises TypeError for a value that has no JSON form."""
    try:
        return orjson.dumps(value, default=_dump_model)
    except TypeError:
        return orjson.dumps(make_encodable(value)[0], default=_dump_model, option=orjson.OPT_NON_STR_KEYS)


def make_encodable(value: Any, *, show_objects: bool = False) -> tuple[Any, list[str]]:
    """A copy of a value that can be encoded, and what was altered: a path and a reason each.

    With `show_objects`, a value without a JSON form becomes text instead of a TypeError.
    """
    copier = _Copier(show_objects=show_objects)
    return copier.copy(value, "", 0), copier.alterations


def dump_model(model: Any) -> dict[str, Any]:
    """The fields of a pydantic model for JSON, altered where JSON cannot hold them."""
    try:
        fields: dict[str, Any] = model.model_dump(mode="json")
    except ValueError:  # surrogates, cycles, depth; or a type without a JSON form, which stays an error
        fields = make_encodable(dict(model))[0]
    return fields


def find_big_integer(text: bytes) -> str | None:
    """The digits of an integer in JSON text that exceeds 64 bits: our decoder would silently make it a float."""
    if _MANY_DIGITS not in text.translate(_AS_ZEROS):  # twenty times faster than a regular expression
        return None
    big: list[str] = []

    def parse(digits: str) -> int:
        if len(digits) > _MAX_DIGITS or not _MIN_INTEGER <= int(digits) <= _MAX_INTEGER:
            big.append(digits)
        return 0

    json.loads(text, parse_int=parse)
    return big[0] if big else None


def is_finite_number(value: Any) -> TypeGuard[float]:
    """A finite int or float. Integers too large for a float are not."""
    if not isinstance(value, (int, float)):
        return False
    try:
        return float(value) - float(value) == 0.0
    except OverflowError:
        return False


def is_count(value: Any) -> TypeGuard[int]:
    """A whole number that a counter can hold."""
    return type(value) is int and 0 <= value <= MAX_COUNT


def show(value: Any, limit: int = 300) -> str:
    """A value as text for a message: bounded, without lone surrogates."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - the author's code, a huge integer, or nested too deeply
        text = f"a value of type {type(value).__name__} that cannot be shown ({type(error).__name__})"
    return printable(text if len(text) <= limit else f"{text[:limit]}…")


def printable(text: str) -> str:
    """The text without lone surrogates; pairs of surrogates become the character they stand for."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def show_key(key: Any) -> str:
    """A key of an object as a step of a path."""
    return key if isinstance(key, str) else show(key, 80)


class _Copier:
    def __init__(self, *, show_objects: bool) -> None:
        self.alterations: list[str] = []
        self._show_objects = show_objects

    def copy(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, (bool, float)) or value is None:
            return value
        if isinstance(value, int):
            return self._integer(value, path)
        if isinstance(value, (dict, list, tuple)):
            return self._container(value, path, depth)
        return self._object(value, path, depth)

    def _object(self, value: Any, path: str, depth: int) -> Any:
        if hasattr(value, "model_dump"):
            return self.copy(dict(value), path, depth)
        try:
            return self.copy(orjson.loads(orjson.dumps(value, default=_dump_model)), path, depth)
        except TypeError as error:
            if self._show_objects:
                return self._note_alteration(show(value), path, "a value without a JSON form became text")
            raise TypeError(f"{self._printable_path(path)}: {error}") from error

    def _container(self, value: Any, path: str, depth: int) -> Any:
        if depth >= MAX_DEPTH:
            return self._note_alteration(_TOO_DEEP, path, "nested too deeply, left out")
        if isinstance(value, dict):
            return {
                self._key(key, path): self.copy(item, f"{path}.{show_key(key)}", depth + 1)
                for key, item in value.items()
            }
        return [self.copy(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]

    def _key(self, key: Any, path: str) -> Any:
        if isinstance(key, str):
            return self._text(key, path)
        if isinstance(key, int) and not isinstance(key, bool):
            return self._integer(key, path)
        return show(key) if self._show_objects and key is not None and not isinstance(key, (bool, float)) else key

    def _text(self, text: str, path: str) -> str:
        fixed = printable(text)
        return text if fixed == text else self._note_alteration(fixed, path, "lone surrogates became U+FFFD")

    def _integer(self, value: int, path: str) -> int | str:
        if _MIN_INTEGER <= value <= _MAX_INTEGER:
            return value
        text = str(value) if value.bit_length() <= _MAX_DECIMAL_BITS else hex(value)
        return self._note_alteration(text, path, "an integer beyond 64 bits became text")

    def _note_alteration(self, value: str, path: str, reason: str) -> str:
        if len(self.alterations) < MAX_ALTERATIONS:
            self.alterations.append(f"{self._printable_path(path)}: {reason}")
        return value

    @staticmethod
    def _printable_path(path: str) -> str:
        return printable(path.lstrip("."))[:200] or "the value"


def _dump_model(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return dump_model(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")
