"""What the ledger asks of a model family: prompts as ids, the bridge to the next turn, and what a generation says.

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
    "Refusal",
    "Rendered",
    "Renderer",
    "Said",
    "SaidCall",
    "Source",
]


@dataclass(frozen=True, slots=True)
class Rendered:
    """Ids and where they came from, as runs that cover all of them in order."""

    ids: tuple[int, ...]
    sources: tuple[tuple[Source, int], ...]


@dataclass(frozen=True, slots=True)
class Extension:
    """The next prompt is everything so far, less the last `cut` sampled ids, plus `delta`."""

    delta: Rendered
    cut: int = 0
    """1 when sampling ended on a stop token that the template never writes at a turn's end, else 0."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The template would write the history differently: the ledger renders afresh and forks."""

    reason: ForkReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SaidCall:
    """A tool call as the model wrote it. `arguments` is the text of JSON if it parsed, else what stood there."""

    name: str
    arguments: str
    id: str | None = None
    """The id that the model itself wrote, in families that do (Mistral)."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a generation says."""

    content: str
    reasoning: str | None = None
    tool_calls: tuple[SaidCall, ...] = ()
    malformed: tuple[str, ...] = ()
    """What looked like a call but is none (its text stays in `content`), or a thought that was never closed."""


class NotRenderable(ValueError):  # noqa: N818 - a refusal that says what the template cannot express
    """The template has no way to say this (tools without tool support, roles that must alternate…)."""


class Renderer(Protocol):
    """One model family's way of writing conversations."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def digest(self) -> str:
        """Of tokenizer, template and family together."""
        ...

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids that end a turn; more than one in some families."""
        ...

    def prompt(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], args: Mapping[str, object]
    ) -> Rendered:
        """The whole prompt up to where the model speaks. Raises NotRenderable."""
        ...

    def bridge(
        self,
        history: Sequence[JsonObject],
        generated: Sequence[int],
        new: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
    ) -> Extension | Refusal:
        """What lies between a generation and the next one.

        `history` ends with the assistant message that `generated` was parsed into; `new` are the messages after it.
        The cost does not grow with the length of the history's texts.
        """
        ...

    def parse(self, generated: Sequence[int], prompt_ids: Sequence[int] = (), tools: Sequence[JsonObject] = ()) -> Said:
        """What the sampled ids say; the stop token is not part of it.

        `prompt_ids`: what they continue. Some templates open a thought there, and only its end is sampled. `tools`:
        some families write texts and numbers alike, and only the tool tells which it is.
        """
        ...
