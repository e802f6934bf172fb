"""The tokens of a rollout as records store them: one entry for each model call, each continuing another.

Storage is linear: an entry holds what its prompt adds to its parent's tokens, and what was sampled. Export
(`gymnast.tokens.export`) assembles whole prompts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

LEDGER: Final = "_ng_token_ledger"
"""Its key in a record."""
TOKEN_CALL: Final = "token_call"
"""On the last output item of a model call: the number of its entry."""
EPISODE_AGENTS: Final = "episode_agents"
"""In a record of several trained agents: the reward and the calls of each."""
SCHEMA_VERSION: Final = 1
TokenForm = Literal["ledger", "items"]
"""How records store tokens: in one ledger, linear in tokens, or as whole prompts on output items, as in NeMo Gym."""


class RecordedTokens(NamedTuple):
    """Which models' tokens a collection stores, and how."""

    models: tuple[str, ...] = ()
    """The model instances that keep token ledgers."""
    form: TokenForm = "ledger"


NO_TOKENS: Final = RecordedTokens()


class Source(StrEnum):
    """Where a token came from."""

    SAMPLED = "sampled"
    TEMPLATE = "template"
    SYSTEM = "system"
    USER = "user"
    TOOL = "tool"
    ASSISTANT = "assistant"
    """Assistant text that was not sampled here: part of the task, or rendered again after a fork."""
    PROMPT = "prompt"
    """A prompt that the inference server rendered, without saying what is what."""


class ForkReason(StrEnum):
    """How a prompt relates to the calls before it. Only `EXTENDS` continues a segment; all others start one."""

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
    """The inference server rendered the prompt, and its ids do not extend what was sampled."""


class TokenSpan(msgspec.Struct, frozen=True, array_like=True):
    """The weights that sampled tokens `start` to `end` of a call."""

    version: str
    start: int
    end: int


class RoutedExperts(msgspec.Struct, frozen=True):
    """The experts that a mixture-of-experts model chose for consecutive tokens, in each of its layers.

    Row n has the experts of token n as an input. The last sampled token of a call was not an input yet: its row comes
    with the next call, or never.
    """

    start: int
    """The first token, counted from the start of the prompt."""
    layers: int
    top_k: int
    width: int
    """Bytes of each number: 1, 2 or 4, little-endian. A negative number is an unknown expert."""
    rows: bytes
    """Tokens by layers by top_k numbers."""

    @property
    def row_size(self) -> int:
        return self.layers * self.top_k * self.width

    @property
    def end(self) -> int:
        return self.start + len(self.rows) // self.row_size

    def between(self, start: int, end: int) -> RoutedExperts:
        """Only the rows of these tokens."""
        start, end = max(start, self.start), min(max(end, start), self.end)
        rows = self.rows[(start - self.start) * self.row_size : (end - self.start) * self.row_size]
        return msgspec.structs.replace(self, start=start, rows=rows)


class TokenCall(msgspec.Struct, frozen=True, omit_defaults=True):
    reason: ForkReason
    delta: list[int]
    """Ids of the prompt after the first `keep` of the parent's (its prompt and generation)."""
    sources: list[tuple[Source, int]]
    """Where the delta's ids come from, as runs."""
    sampled: list[int]
    logprobs: list[float]
    """One for each sampled id; empty if the call is masked because they are missing."""
    finish: str
    parent: int | None = None
    """The call whose tokens this prompt starts with."""
    keep: int = 0
    logprob_mode: str = "unknown"
    temperature: float = 1.0
    weights: list[TokenSpan] = []
    """Empty if the backend does not report them."""
    ids_sent: bool = True
    """The backend was sent ids. Otherwise it rendered the prompt, and the ids are those it reported."""
    drift: int | None = None
    """The first token at which a prompt rendered by the backend differs from its parent's tokens."""
    masked: str | None = None
    """Why the sampled tokens must not be trained on."""
    detail: str | None = None
    """More about the reason."""
    policy: str = ""
    """The model server that sampled it, in a rollout of several."""
    experts: RoutedExperts | None = None
    """From the last token that the parent's do not cover; None if the backend does not report them."""
    media: list[str] | None = None
    """Digests of all images and videos in the prompt, in order (see `gymnast.tokens.media`); None if not recorded."""


class TokenLedger(msgspec.Struct, frozen=True, omit_defaults=True):
    calls: list[TokenCall]
    model: str
    renderer: str = ""
    """Digest of tokenizer, template and family; empty if the backend renders."""
    schema_version: int = SCHEMA_VERSION
