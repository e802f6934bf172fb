"""What a judge is asked and what its answer means: prompt templates, labels, the majority of votes. Pure.

A judge's word is a label. Text without a label is no verdict, whatever else it says.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from gymnast.config.roots import HUB
from gymnast.errors import UserError
from gymnast.types.json import JsonObject

LONGEST_SHOWN: Final = 16_384
"""Characters of an answer that a judge is shown."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The words that are verdicts. `equal` means what an environment rewards."""

    equal: str = "[[A=B]]"
    not_equal: str = "[[A!=B]]"

    def first_in(self, text: str) -> str | None:
        """The label that comes first in an answer; of two that begin together, the longer."""
        found = [(text.index(label), -len(label), label) for label in (self.equal, self.not_equal) if label in text]
        return min(found)[2] if found else None

    def defused(self, text: str) -> str:
        """Text for a judge to read, in which no label stands: an answer cannot bring its own verdict along."""
        for label in (self.equal, self.not_equal):
            if label in text and len(label) > 1:
                text = text.replace(label, f"{label[0]} {label[1:]}")
        return text


def shortened(text: str, limit: int = LONGEST_SHOWN) -> str:
    """The end of a text that is too long for a judge: that is where answers are."""
    return text if len(text) <= limit else f"[…]{text[-limit:]}"


class JudgeEvaluation(BaseModel):
    """One question to a judge and its answer, as records keep them."""

    model_config = ConfigDict(frozen=True)
    responses_create_params: JsonObject
    response: JsonObject
    verdict_label: str | None = None


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the majority of a judge's votes says."""

    label: str
    evaluations: tuple[JudgeEvaluation, ...]


def majority(votes: Sequence[str], of: int) -> str | None:
    """The label that more than half of `of` votes have, however the missing ones would have gone."""
    label, number = Counter(votes).most_common(1)[0] if votes else (None, 0)
    return label if number * 2 > of else None


class Template:
    """A prompt with `{fields}`, `{{` and `}}` for braces."""

    def __init__(self, text: str, fields: Sequence[str], where: str = "the judge's prompt") -> None:
        known = ", ".join(f"{{{name}}}" for name in fields)
        try:
            used = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
        except ValueError as error:
            raise UserError(f"{where} is no template: {error}", next="write {{ and }} for braces") from error
        if unknown := used - set(fields):
            named = ", ".join(f"'{{{name}}}'" for name in sorted(unknown))
            raise UserError(f"{where} has {named}, which nobody fills", next=f"use {known}; {{{{ and }}}} are braces")
        self._text = text

    def filled(self, **values: str) -> str:
        """The prompt. Values are put in as they are, braces included."""
        return self._text.format(**values)


def load_template(path: str, fields: Sequence[str]) -> Template:
    """A template from a file: as the path says, else of the hub."""
    for found in (Path(path).expanduser(), HUB / path):
        if found.is_file():
            return Template(found.read_text(encoding="utf-8"), fields, str(found))
    raise UserError(
        f"the judge's prompt '{path}' does not exist",
        where=f"searched {Path.cwd()} and {HUB}",
        next="set judge_prompt_template_fpath to a text file",
    )
