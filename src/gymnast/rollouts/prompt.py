"""Prompt templates: user and system messages filled with a row's fields by `str.format_map`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from gymnast.errors import DataError
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A `prompt_config` file."""

    user: str
    system: str | None = None

    def messages(self, row: JsonObject) -> list[JsonObject]:
        """The input items for a row. Raises ValueError naming the field that is missing."""
        return [
            {"role": role, "content": _fill(text, row)}
            for role, text in (("system", self.system), ("user", self.user))
            if text is not None
        ]

    def apply(self, row: JsonObject) -> JsonObject:
        """The row with its input made from the template. Raises ValueError if it has an input already."""
        params = row.get(PARAMS) or {}
        if params.get("input"):
            raise ValueError("the row already has an input, which a prompt template would replace")
        return {**row, PARAMS: {**params, "input": self.messages(row)}}


def read_template(path: Path) -> PromptTemplate:
    """A template file: YAML with `user` and, optionally, `system`."""
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise DataError(f"cannot read the prompt template: {error}", where=str(path)) from error
    if not isinstance(data, dict) or not isinstance(data.get("user"), str) or set(data) - {"user", "system"}:
        raise DataError("a prompt template needs a text `user` and may have a text `system`", where=str(path))
    return PromptTemplate(data["user"], data.get("system"))


def _fill(text: str, row: JsonObject) -> str:
    try:
        return text.format_map(row)
    except KeyError as error:
        raise ValueError(f"the prompt template uses {{{error.args[0]}}}, which the row does not have") from error
    except (IndexError, ValueError, AttributeError) as error:
        raise ValueError(f"the prompt template cannot be filled: {error}") from error
