"""Fields of NeMo Gym's collection in a configuration, such as `num_repeats`: they mean what the option of a run means.

An option wins over a field in a file. An option and an override that disagree are an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from gymnast.config.fields import FieldError, Fields, is_positive
from gymnast.errors import UserError
from gymnast.rollouts.skills import skills_ref

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.config import Config
    from gymnast.types.json import JsonObject

Value = TypeVar("Value")


class RunFields:
    """The fields of a run in a configuration, each merged with the option for the same thing."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._fields = Fields(config)

    def text(self, key: str, option: str, given: str | None) -> str | None:
        return self._merge(key, option, given, self._fields.optional(key))

    def positive(self, key: str, option: str, given: int | None) -> int | None:
        return self._merge(key, option, given, self._fields.positive(key))

    def amount(self, key: str, option: str, given: float | None) -> float | None:
        return self._merge(key, option, given, self._fields.amount(key))

    def flag(self, key: str, option: str, *, given: bool) -> bool:
        """A flag cannot be given as false, so a field may turn it on."""
        value = self._fields.flag(key) if key in self._config.values else None
        return bool(self._merge(key, option, given or None, value))

    def repeats(self, given: int | Mapping[str, int] | None) -> int | Mapping[str, int]:
        return self._merge("num_repeats", "--num-repeats", given, read_repeats(self._config)) or 1

    def skills(self) -> JsonObject | None:
        path = self._fields.mapping("skills").get("path")
        return skills_ref(self._config.roots.require(path, "skills.path"), path) if path else None

    def _merge(self, key: str, option: str, given: Value | None, value: Value | None) -> Value | None:
        if given is None or value is None or given == value:
            return value if given is None else given
        node = self._config.root.get(key)
        if node is not None and str(node.origin).startswith("override "):
            raise UserError(f"{option} and {node.origin} set different values", next="use one of them")
        return given


def read_repeats(config: Config) -> int | Mapping[str, int] | None:
    """`num_repeats`: a number, or numbers by agent with an optional `_default`."""
    value: Any = config.values.get("num_repeats")
    if not isinstance(value, dict):
        return Fields(config).positive("num_repeats")
    for name, count in value.items():
        if not is_positive(count):
            raise FieldError(f"num_repeats.{name} must be a positive integer, not {count!r}")
    return value
