"""The arguments of an `ng_` command: Hydra-style words, values of long options, and the configuration from both.

A missing or malformed command field is a FieldError (exit code 2); any other problem with the configuration is a
UserError (exit code 1).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gymnast.config.fields import FieldError, Fields, is_positive
from gymnast.errors import suggest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gymnast.config import Config

__all__ = ["FieldError", "Fields", "NgArguments", "in_fields", "is_positive", "parse_words"]
_AS_FIELDS: Final = {
    "--head-port auto": "++head_server.port=0",
    "another --head URL": "the port of another: ++head_server.port=PORT",
    "--head URL": "++head_server.port=PORT (and host)",
    "--retry-failed": "+retry_failed=true",
    "--skip-bad-rows": "+skip_bad_rows=true",
    "--allow-partial": "+allow_partial_rollouts=true",
    "--no-preflight": "+no_preflight=true",
}
"""Options of `gymnast` commands, and the fields that do the same."""


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
        """Compose the configuration; warnings and notes go to standard error."""
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
            unread="ignore",
        )
        for warning in config.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        for note in config.notes:
            print(f"note: {note}", file=sys.stderr)
        return config

    @property
    def names_configs(self) -> bool:
        """Whether config files are given, so that instances can run here."""
        return bool(self.config_paths) or any(word.lstrip("+").startswith("config_paths=") for word in self.words)


def in_fields(hint: str) -> str:
    """A hint for `gymnast` commands in the words of the `ng_` and `gym` commands, which lack some of the options."""
    for option, words in _AS_FIELDS.items():
        hint = hint.replace(option, words)
    return hint


def parse_words(words: list[str]) -> NgArguments:
    """Parse the words of an `ng_` command, which has no options."""
    flags = [word for word in words if word.startswith("-")]
    if flags:
        hint = suggest(flags[0].lstrip("-"), ("config_paths", "agent_name", "input_jsonl_fpath", "output_jsonl_fpath"))
        raise FieldError(f"unknown option {flags[0]}", next=f"arguments are +key=value; {hint}")
    return NgArguments(tuple(words))
