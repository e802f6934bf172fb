"""What the ledger asks of a model family: prompts as ids, the bridge to the next turn, and what a generation says.

Messages are chat messages: `role`, `content` (text or None), for assistants `reasoning_content` and `tool_calls`
(`{"id", "type": "function", "function": {"name", "arguments": JSON text}}`), for tools `tool_call_id`. Tools are chat
tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.tokens.tokenizer import Tokenizer
    from gymnast.types.json import JsonObject


class Source(StrEnum):
    """Where a token came from."""

    SAMPLED = "sampled"
    TEMPLATE = "template"
    SYSTEM = "system"
    USER = "user"
    TOOL = "tool"
    ASSISTANT = "assistant"
    """Words of an assistant that nobody sampled here: given with the task, or rendered again after a fork."""


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


class ForkReason(StrEnum):
    """Why a prompt does not extend an earlier one."""

    FIRST = "first"
    """The first call, or one that shares nothing with any before (a sub-agent)."""
    BRANCH = "branch"
    """A second continuation of the same turn."""
    HISTORY_EDITED = "history_edited"
    HISTORY_SHORTENED = "history_shortened"
    """Messages are missing from the history: context was compacted."""
    TOOLS_CHANGED = "tools_changed"
    TEMPLATE_ARGS_CHANGED = "template_args_changed"
    TEMPLATE_REWRITES_HISTORY = "template_rewrites_history"
    STOP_TOKEN_OFF_TEMPLATE = "stop_token_off_template"  # noqa: S105 - a reason, no password
    ENGINE_RETOKENISED = "engine_retokenised"
    """The engine rendered the prompt itself and its ids do not extend what was sampled."""


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


@dataclass(frozen=True, slots=True)
class Said:
    """What a generation says."""

    content: str
    reasoning: str | None = None
    tool_calls: tuple[SaidCall, ...] = ()
    malformed: tuple[str, ...] = ()
    """What looked like a call or a thought but is none; its text stays in `content`."""


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

    def parse(self, generated: Sequence[int]) -> Said:
        """What the sampled ids say; the stop token is not part of it."""
        ...
