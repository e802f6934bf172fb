"""Prompt templates: user and system messages filled with a row's fields. Also how long a row's prompt is.

A `prompt_config` file is filled by `str.format_map`, as in NeMo Gym. A prompt given inline is text with fields in it:
`{question}` or `{meta.question}` is replaced, and other braces, as in `\\boxed{}` or JSON, stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from gymnast.errors import DataError, UserError
from gymnast.rollouts.row_map import field_names, fill_fields
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.types.json import JsonObject

_TEXT_FILES: Final = (".txt", ".md")
_YAML_FILES: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A `prompt_config` file, or an inline prompt."""

    user: str
    system: str | None = None
    is_inline: bool = False

    def messages(self, row: JsonObject) -> list[JsonObject]:
        """The input items for a row. Raises ValueError naming the field that is missing."""
        return [
            {"role": role, "content": fill_fields(text, row) if self.is_inline else _fill(text, row)}
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
        raise DataError("a prompt template needs a string `user` and may have a string `system`", where=str(path))
    return PromptTemplate(data["user"], data.get("system"))


def inline_template(text: str) -> PromptTemplate:
    """A prompt in the place of a file. Raises UserError if it uses no field, so that all tasks would be the same."""
    if not field_names(text):
        raise UserError(
            f"the prompt '{text}' uses no field of the row" if text.strip() else "the prompt is empty",
            next="name one in braces: --prompt 'Solve: {question}'; a template file ends in .yaml, .txt or .md",
        )
    return PromptTemplate(text, is_inline=True)


def is_template_file(text: str) -> bool:
    """Whether a `--prompt` names a file: YAML with `user` and `system`, or the text itself."""
    return "{" not in text and "\n" not in text and text.lower().endswith((*_YAML_FILES, *_TEXT_FILES))


def read_prompt_file(path: Path) -> PromptTemplate:
    """A template file of either kind."""
    if path.suffix.lower() in _YAML_FILES:
        return read_template(path)
    try:
        return inline_template(path.read_text(encoding="utf-8-sig").rstrip("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the prompt: {error}", where=str(path)) from error


def _fill(text: str, row: JsonObject) -> str:
    try:
        return text.format_map(row)
    except KeyError as error:
        raise ValueError(f"the prompt template uses {{{error.args[0]}}}, which the row does not have") from error
    except (IndexError, ValueError, AttributeError) as error:
        raise ValueError(f"the prompt template cannot be filled: {error}") from error


MAX_CHARS_PER_TOKEN: Final = 10
"""Text of any language has fewer characters per token."""
_NOT_TEXT: Final = frozenset(
    {"image_url", "file_data", "file_url", "file_id", "input_audio", "data", "encrypted_content", "id", "call_id"}
)


def count_chars(params: JsonObject) -> int:
    """The characters of a request's instructions, input and tools."""
    return sum(_count(params.get(name)) for name in ("instructions", "input", "tools"))


def exceeds_context(params: JsonObject, context: int) -> bool:
    """Whether a request certainly does not fit into a context of so many tokens."""
    output = params.get("max_output_tokens")
    return count_chars(params) / MAX_CHARS_PER_TOKEN + (output if isinstance(output, int) else 0) > context


def _count(value: Any) -> int:
    if isinstance(value, str):
        return 0 if value.startswith("data:") else len(value)
    if isinstance(value, list):
        return sum(map(_count, value))
    if isinstance(value, dict):
        return sum(_count(entry) for name, entry in value.items() if name not in _NOT_TEXT)
    return 0
