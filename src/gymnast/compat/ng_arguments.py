"""The arguments of an `ng_` command: Hydra-style words, values of long options, and the configuration from both.

A missing or malformed command field is a FieldError (exit code 2); any other problem with the configuration is a
UserError (exit code 1).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gymnast.errors import UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from gymnast.config import Config


class FieldError(UserError):
    """A missing or malformed command field."""


@dataclass(frozen=True, slots=True)
class NgArguments:
    """The contents of a command line."""

    words: tuple[str, ...] = ()
    """`+key=value` and the like."""
    config_paths: tuple[str, ...] = ()
    search_dirs: tuple[Path, ...] = ()
    model_type: str | None = None
    model: str | None = None
    model_url: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of long options by the key they set; words override them."""

    def config(self, *, stub_policy: bool = False) -> Config:
        """Compose the configuration; warnings go to standard error."""
        from gymnast.config import compose, read_environ

        config = compose(
            read_environ(),
            overrides=self.words,
            config_paths=self.config_paths,
            model_type=self.model_type,
            model=self.model,
            model_url=self.model_url,
            search_dirs=self.search_dirs,
            values=self.values,
            stub_policy=stub_policy,
        )
        for warning in config.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        return config

    @property
    def names_configs(self) -> bool:
        """Whether config files are given, so that instances can run here."""
        return bool(self.config_paths) or any(word.lstrip("+").startswith("config_paths=") for word in self.words)


def parse_words(words: list[str]) -> NgArguments:
    """Parse the words of an `ng_` command, which has no options."""
    flags = [word for word in words if word.startswith("-")]
    if flags:
        hint = suggest(flags[0].lstrip("-"), ("config_paths", "agent_name", "input_jsonl_fpath", "output_jsonl_fpath"))
        raise FieldError(f"unknown option {flags[0]}", next=f"arguments are +key=value; {hint}")
    return NgArguments(tuple(words))


class Fields:
    """The fields of a command, each checked when it is read."""

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
