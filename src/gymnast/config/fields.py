"""Fields of a command in a configuration, each checked when it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.errors import UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Collection

    from gymnast.config.load import Config


class FieldError(UserError):
    """A missing or malformed command field."""


class Fields:
    def __init__(self, config: Config) -> None:
        self._values = config.values

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or not value:
            raise FieldError(f"+{name}=… is required", next=f"add +{name}=PATH")
        return value

    def optional(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is not None and not isinstance(value, str):
            raise FieldError(f"{name} must be a string, not {value!r}")
        return value or None

    def one_of(self, name: str, known: Collection[str]) -> str:
        value = self.text(name)
        if value not in known:
            raise FieldError(f"invalid value '{value}' for {name}", next=suggest(value, known))
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if value not in (True, False):  # 1 and 0 are equal to these
            raise FieldError(f"{name} must be true or false, not {value!r}")
        return bool(value)

    def positive(self, name: str) -> int | None:
        value = self._values.get(name)
        if value is not None and not is_positive(value):
            raise FieldError(f"{name} must be a positive integer, not {value!r}")
        return value

    def index(self, name: str, below: int) -> int:
        """An integer from 0 to `below` - 1; 0 if not set."""
        value = self._values.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < below:
            raise FieldError(f"{name} must be an integer from 0 to {below - 1}, not {value!r}")
        return value

    def amount(self, name: str) -> float | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise FieldError(f"{name} must be a positive number, not {value!r}")
        return float(value)

    def mapping(self, name: str) -> dict[str, Any]:
        value = self._values.get(name)
        if value is not None and not isinstance(value, dict):
            raise FieldError(f"{name} must be a mapping, not {value!r}", next=f"write +{name}.KEY=VALUE")
        return dict(value or {})


def is_positive(value: Any) -> bool:
    """Whether a value is a positive integer."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
