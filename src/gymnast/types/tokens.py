"""The tokens of a rollout as records keep them: one entry for each model call, each the continuation of another.

Storage is linear: an entry holds what its prompt adds to its parent's tokens, and what was sampled. Whole prompts are
put together on export (`gymnast.tokens.export`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

LEDGER: Final = "_ng_token_ledger"
"""The record's key."""
TOKEN_CALL: Final = "token_call"
"""On the last output item of a model call: the number of its entry."""
SCHEMA_VERSION: Final = 1
TokenForm = Literal["ledger", "items"]
"""How records hold tokens: one ledger, linear in tokens, or whole prompts on output items as NeMo Gym has them."""


class TokenKeeping(NamedTuple):
    """Whose tokens a collection keeps, and how."""

    models: tuple[str, ...] = ()
    """The model instances that account for tokens."""
    form: TokenForm = "ledger"


NO_TOKENS: Final = TokenKeeping()


class Source(StrEnum):
    """Where a token came from."""

    SAMPLED = "sampled"
    TEMPLATE = "template"
    SYSTEM = "system"
    USER = "user"
    TOOL = "tool"
    ASSISTANT = "assistant"
    """Words of an assistant that nobody sampled here: given with the task, or rendered again after a fork."""
    PROMPT = "prompt"
    """A prompt that the engine rendered: it does not say what is what."""


class ForkReason(StrEnum):
    """How a prompt relates to the calls before it. Only `EXTENDS` continues a segment; all others begin one."""

    EXTENDS = "extends"
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
    STOP_TOKEN_OFF_TEMPLATE = "stop_token_off_template"
    ENGINE_RETOKENISED = "engine_retokenised"
    """The engine rendered the prompt itself and its ids do not extend what was sampled."""


class TokenSpan(msgspec.Struct, frozen=True, array_like=True):
    """Sampled tokens `start` to `end` of a call come from these weights."""

    version: str
    start: int
    end: int


class TokenCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model call."""

    reason: ForkReason
    delta: list[int]
    """Ids of the prompt after the first `keep` of the parent's (its prompt and generation)."""
    sources: list[tuple[Source, int]]
    """Where the delta's ids come from, as runs."""
    sampled: list[int]
    logprobs: list[float]
    """One for each sampled id; none when the call is masked for want of them."""
    finish: str
    parent: int | None = None
    """The call whose tokens this prompt begins with."""
    keep: int = 0
    logprob_mode: str = "unknown"
    temperature: float = 1.0
    weights: list[TokenSpan] = []
    """Empty when the engine does not say."""
    ids_sent: bool = True
    """The engine was given ids. Otherwise it rendered the prompt itself and the ids are what it reported."""
    drift: int | None = None
    """The first token at which a prompt rendered by the engine leaves what its parent holds."""
    masked: str | None = None
    """Why what was sampled here must not be trained on."""
    detail: str | None = None
    """More about the reason."""


class TokenLedger(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tokens of one rollout."""

    calls: list[TokenCall]
    model: str
    renderer: str = ""
    """Digest of tokenizer, template and family; empty when the engine renders."""
    schema_version: int = SCHEMA_VERSION
