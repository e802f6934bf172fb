"""The renderer interface of a model family: prompts as ids, bridges to the next turn, and parsed generations.

Messages are chat messages: `role`, `content` (text or None), for assistants `reasoning_content` and `tool_calls`
(`{"id", "type": "function", "function": {"name", "arguments": JSON text}}`), for tools `tool_call_id`. Tools are chat
tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gymnast.types.tokens import ForkReason, Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.tokens.tokenizer import Tokenizer
    from gymnast.types.json import JsonObject


__all__ = [
    "Extension",
    "ForkReason",
    "NotRenderable",
    "ParsedCall",
    "ParsedTurn",
    "Refusal",
    "Rendered",
    "Renderer",
    "Source",
]


@dataclass(frozen=True, slots=True)
class Rendered:
    """Ids and their sources, as runs that cover all ids in order."""

    ids: tuple[int, ...]
    sources: tuple[tuple[Source, int], ...]


@dataclass(frozen=True, slots=True)
class Extension:
    """The next prompt is all tokens so far, minus the last `cut` sampled ids, plus `delta`."""

    delta: Rendered
    cut: int = 0
    """1 if sampling ended on a stop token that the template does not write at the end of a turn, else 0."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The template would render the history differently: the conversation renders the whole prompt and forks."""

    reason: ForkReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call as the model wrote it. `arguments` is normalised JSON."""

    name: str
    arguments: str
    id: str | None = None
    """The id written by the model, in families that do so (Mistral)."""


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ParsedCall, ...] = ()
    malformed: tuple[str, ...] = ()
    """What is wrong with malformed calls (their text stays in `content`) or an unclosed thought."""


class NotRenderable(ValueError):  # noqa: N818 - a rejection that says what the template cannot express
    """The template cannot express this (no tool support, roles must alternate…)."""


class Renderer(Protocol):
    """Renders and parses the conversations of one model family."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def digest(self) -> str:
        """A digest of tokenizer, template and family."""
        ...

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end a turn; some families have several."""
        ...

    def prompt(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], args: Mapping[str, object]
    ) -> Rendered:
        """Render the whole prompt, up to the model's turn. Raises NotRenderable."""
        ...

    def bridge(
        self,
        history: Sequence[JsonObject],
        generated: Sequence[int],
        new: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
    ) -> Extension | Refusal:
        """Derive the tokens between a generation and the next one.

        `history` ends with the assistant message parsed from `generated`; `new` are the messages after it. The cost
        does not depend on the length of the history's texts.
        """
        ...

    def parse(
        self, generated: Sequence[int], prompt_ids: Sequence[int] = (), tools: Sequence[JsonObject] = ()
    ) -> ParsedTurn:
        """Parse sampled ids, without the stop token.

        `prompt_ids`: some templates open a thought in the prompt, so that only its end is sampled. `tools`: some
        families write strings and numbers alike, and only the tool's schema tells them apart.
        """
        ...
