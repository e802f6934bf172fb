"""Judge prompts and verdicts: templates, labels, the majority of votes. Pure.

A verdict is a label in the judge's text. Text without a label is not a verdict.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from gymnast.config.roots import BUILTIN
from gymnast.errors import UserError
from gymnast.kit.quoting import MARK, QUOTE_NOTICE, Quoter
from gymnast.types.json import JsonObject

MAX_SHOWN_CHARS: Final = 16_384
"""Characters of an answer to show to a judge."""
_DECORATION: Final = " \t*_`.\"'"
"""What may follow the label of a verdict."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels that are verdicts. `equal` is the one that environments reward."""

    equal: str = "[[A=B]]"
    not_equal: str = "[[A!=B]]"

    def find_first(self, text: str) -> str | None:
        """The first label in a text; of two that start together, `not_equal`."""
        equal, not_equal = text.find(self.equal), text.find(self.not_equal)
        if not_equal >= 0 and (equal < 0 or not_equal <= equal):
            return self.not_equal
        return self.equal if equal >= 0 else None

    def find_final(self, text: str) -> str | None:
        """The label that ends the last line, if it is the only one in that line and the line is not a quotation."""
        line = (text.strip().splitlines() or [""])[-1].strip()
        if line.startswith(MARK.strip()):
            return None
        for label in sorted((self.equal, self.not_equal), key=len, reverse=True):
            for end in (line, line.rstrip(_DECORATION)):
                if end.endswith(label):
                    return None if self._is_ambiguous(end, label) else label
        return None

    def _is_ambiguous(self, line: str, label: str) -> bool:
        rest = line.removesuffix(label)
        continues_word = label[:1].isalnum() and rest[-1:].isalnum()
        return continues_word or self.equal in rest or self.not_equal in rest

    def defuse(self, text: str) -> str:
        """The text with its labels broken up, so that an answer shown to a judge cannot contain a verdict."""
        for label in (self.equal, self.not_equal):
            if label in text and len(label) > 1:
                text = text.replace(label, f"{label[0]} {label[1:]}")
        return text


def truncate_start(text: str, limit: int = MAX_SHOWN_CHARS) -> str:
    """Drop the start of a text that is too long for a judge: answers are at the end."""
    return text if len(text) <= limit else f"[…]{text[-limit:]}"


class JudgeEvaluation(BaseModel):
    """One question to a judge and its response, as stored in records."""

    model_config = ConfigDict(frozen=True)
    responses_create_params: JsonObject
    response: JsonObject
    verdict_label: str | None = None


@dataclass(frozen=True, slots=True)
class Opinion:
    """The majority of a judge's votes."""

    label: str
    evaluations: tuple[JudgeEvaluation, ...]


def majority(votes: Sequence[str], of: int) -> str | None:
    """The label of more than half of `of` votes, whatever the missing ones would have been."""
    label, count = Counter(votes).most_common(1)[0] if votes else (None, 0)
    return label if count * 2 > of else None


class Template:
    """A prompt with `{fields}`; `{{` and `}}` are braces."""

    def __init__(self, text: str, fields: Sequence[str], where: str = "the judge's prompt") -> None:
        known = ", ".join(f"{{{name}}}" for name in fields)
        try:
            used = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
        except ValueError as error:
            raise UserError(f"{where} is not a valid template: {error}", next="write {{ and }} for braces") from error
        if unknown := used - set(fields):
            names = ", ".join(f"'{{{name}}}'" for name in sorted(unknown))
            raise UserError(f"{where} has unknown fields: {names}", next=f"use {known}; {{{{ and }}}} are braces")
        self._text = text

    def fill(self, **values: str) -> str:
        """The prompt with its fields replaced. Braces in values are kept."""
        return self._text.format(**values)

    def fill_quoting(self, quoter: Quoter, quoted: Mapping[str, str], **values: str) -> str:
        """The prompt with some fields as quotations, on lines of their own, and how to read those at its end."""
        prompt, follows_quotation = "", False
        pieces = list(self._pieces(quoter, quoted, values))
        for text, is_quotation in pieces:
            is_glued = is_quotation and prompt and not prompt.endswith("\n")
            if is_glued or (follows_quotation and not text.startswith("\n")):
                prompt += "\n"
            prompt += text
            follows_quotation = is_quotation
        has_quotation = any(is_quotation for _, is_quotation in pieces)
        return f"{prompt.rstrip()}\n\n{QUOTE_NOTICE}" if has_quotation else prompt

    def _pieces(
        self, quoter: Quoter, quoted: Mapping[str, str], values: Mapping[str, str]
    ) -> Iterator[tuple[str, bool]]:
        """The parts of the prompt that are not empty, and whether each is a quotation."""
        for literal, name, _, _ in string.Formatter().parse(self._text):
            if literal:
                yield literal, False
            if name is not None and name in quoted:
                yield quoter.quote(quoted[name]), True
            elif name is not None and values[name]:
                yield values[name], False


def load_template(path: str, fields: Sequence[str]) -> Template:
    """A template from a file without blanks around it: the path itself, or the one under it among the built-ins."""
    for file in (Path(path).expanduser(), BUILTIN / path):
        if file.is_file():
            return Template(file.read_text(encoding="utf-8").strip(), fields, str(file))
    raise UserError(
        f"the judge's prompt '{path}' does not exist",
        where=f"searched {Path.cwd()} and {BUILTIN}",
        next="set judge_prompt_template_fpath to a text file",
    )
