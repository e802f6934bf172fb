"""What a trainer receives: a sample of one or more segments per rollout, a group per task, a batch of groups.

Every rollout is present: one that must not be trained on is a sample with a mask reason, and a failed one is a sample
without segments and reward.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from gymnast.tokens.expert_arrays import unpack_experts
from gymnast.types.tokens import ForkReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.tokens.expert_arrays import Experts
    from gymnast.tokens.media import Media
    from gymnast.types.json import JsonObject
    from gymnast.types.task import RolloutKey
    from gymnast.types.tokens import RoutedExperts

Ids = NDArray[np.int32]
Mask = NDArray[np.uint8]
Logprobs = NDArray[np.float32]

UNKNOWN: Final = "unknown"
"""The version of weights, or the mode of logprobs, that the inference server does not report."""
MIXED: Final = "mixed"


class MaskReason(StrEnum):
    """Why a rollout must not be trained on."""

    FAILED = "failed"
    """It has no reward; see `failure`."""
    NO_TOKENS = "no_tokens"
    """Its record has neither a ledger nor token ids on its items."""
    BAD_LEDGER = "bad_ledger"
    """Its ledger is inconsistent."""
    BAD_LOGPROBS = "bad_logprobs"
    """Logprobs of a call are missing or not finite, even after a retry."""
    NOTHING_SAMPLED = "nothing_sampled"
    """It has no sampled token, e.g. because its first prompt did not fit the context."""
    ENVIRONMENT = "environment"
    """Its record requests it (`mask_sample`): the agent, the environment, or `--truncated mask`."""
    TRUNCATED = "truncated"
    """It was truncated, and `mask_truncated` is set."""
    STALE = "stale"
    """It was sampled by outdated weights."""
    FORKED = "forked"
    """It has several segments, but the trainer accepts one sequence per rollout."""


class Termination(StrEnum):
    """How a rollout ended."""

    NATURAL = "natural"
    """The policy finished on its own."""
    LENGTH = "length"
    """Truncated by the output or context limit."""
    TURN_LIMIT = "turn_limit"
    """Truncated by the agent's limit of steps, model calls or time."""
    FAILED = "failed"
    """There is no scored record."""


class VersionSpan(NamedTuple):
    """Tokens `start` to `end` of a segment were sampled by these weights."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A token sequence in which every prompt extends the one before and its sampled tokens."""

    ids: Ids
    mask: Mask
    """1 exactly for the tokens sampled in this segment. Tokens sampled in another segment are context."""
    logprobs: Logprobs
    """Of the tokens with mask 1, as reported by the inference server; 0 elsewhere."""
    turns: tuple[tuple[int, int], ...]
    """Start and end of each model call's sampled tokens."""
    versions: tuple[VersionSpan, ...] = ()
    """The weights of sampled tokens, as far as the inference server reports them."""
    reason: ForkReason = ForkReason.FIRST
    """Why it is a separate segment."""
    parent: int | None = None
    """Index of the segment that it forks from."""
    shared: int = 0
    """Number of leading tokens shared with the parent."""
    share: float = 1.0
    """Its share of the rollout's reward; the shares of a sample sum to 1."""
    logprob_mode: str = UNKNOWN
    """`raw`, `processed`, `unknown`, or `mixed` if its calls differ."""
    temperature: float | None = 1.0
    """None if its calls differ."""
    calls: tuple[int, ...] = ()
    """The number of each turn's model call in the rollout."""
    policy: str = ""
    """The model server that sampled it, in collections with several trained ones."""
    experts: RoutedExperts | None = None
    """The experts that a mixture-of-experts model chose for its tokens, if the inference server reports them."""
    new_media: tuple[tuple[Media, ...], ...] = ()
    """The images and videos that the prompt of each turn adds; empty if there are none in the segment."""

    @property
    def media(self) -> tuple[Media, ...]:
        """All images and videos, in the order of their placeholders in `ids`."""
        return tuple(one for added in self.new_media for one in added)

    @property
    def expert_rows(self) -> Experts | None:
        """The experts by token, layer and rank; 0 for the last token, which was never an input."""
        return unpack_experts(self.experts, len(self.ids)) if self.experts is not None else None

    @property
    def trained(self) -> int:
        """The number of tokens sampled in this segment."""
        return int(self.mask.sum())

    @property
    def prompt_length(self) -> int:
        """The number of tokens before the first sampled one."""
        return self.turns[0][0] if self.turns else len(self.ids)

    def version_of_tokens(self) -> list[str | None]:
        """The weights of each token; None if it was not sampled here or they are unknown."""
        versions: list[str | None] = [None] * len(self.ids)
        for version, start, end in self.versions:
            versions[start:end] = [version] * (end - start)
        return versions


@dataclass(frozen=True, slots=True)
class RolloutFailure:
    """Why a rollout has no reward."""

    kind: str
    """A kind from the failure table, or a deadline of the batch."""
    message: str = ""


class AgentPart(NamedTuple):
    """One trained agent of an episode with several."""

    name: str
    reward: float
    calls: tuple[int, ...]
    """The numbers of its model calls."""
    mask: bool = False
    policy: str = ""
    """The model server that sampled them; empty if there is one, or no call."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout, or one agent's part of it."""

    key: RolloutKey
    agent: str
    reward: float | None
    """None for a failed rollout, not 0."""
    segments: tuple[Segment, ...] = ()
    components: dict[str, float] = field(default_factory=dict)
    """The components of the reward, if the environment reports them."""
    mask_reason: MaskReason | None = None
    mask_detail: str = ""
    failure: RolloutFailure | None = None
    termination: Termination = Termination.NATURAL
    numbers: dict[str, float] = field(default_factory=dict)
    """The other top-level numbers of the record."""
    drifted_calls: int = 0
    """Model calls whose prompt was rendered to other tokens than had been sampled."""
    model: str = ""
    line: bytes | None = field(default=None, repr=False)
    """The record, if `keep_line` is set."""
    agents: tuple[AgentPart, ...] = ()
    """The trained agents of an episode with several; `split_agents` makes a sample of each."""

    @property
    def is_trainable(self) -> bool:
        """True if its sampled tokens count in the loss."""
        return self.mask_reason is None

    @property
    def is_scored(self) -> bool:
        return self.failure is None

    @property
    def is_truncated(self) -> bool:
        return self.termination in {Termination.LENGTH, Termination.TURN_LIMIT}

    @property
    def turns(self) -> int:
        """The number of model calls."""
        return sum(len(segment.turns) for segment in self.segments)

    @property
    def trained(self) -> int:
        """The number of tokens that count in the loss; 0 if masked."""
        return sum(segment.trained for segment in self.segments) if self.is_trainable else 0

    @property
    def versions(self) -> tuple[str, ...]:
        """The weights that sampled it, ordered by their first token."""
        return tuple(dict.fromkeys(span.version for segment in self.segments for span in segment.versions))

    @property
    def policies(self) -> tuple[str, ...]:
        """The model servers that sampled it, in collections with several trained ones."""
        return tuple(dict.fromkeys(segment.policy for segment in self.segments if segment.policy))

    @property
    def record(self) -> JsonObject | None:
        """The parsed record, if it was kept."""
        if self.line is None:
            return None
        record: JsonObject = orjson.loads(self.line)
        return record

    def loss_masks(self) -> list[Mask]:
        """The loss mask of each segment; all 0 for a masked sample."""
        if self.is_trainable:
            return [segment.mask for segment in self.segments]
        return [np.zeros_like(segment.mask) for segment in self.segments]

    def masked(self, reason: MaskReason, detail: str = "") -> Sample:
        """A copy that is not trained on. An existing mask reason stays."""
        return self if self.mask_reason is not None else replace(self, mask_reason=reason, mask_detail=detail)


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task, which are compared with each other, in order."""

    task: int
    samples: tuple[Sample, ...]
    requested_at: int = 0
    """The number of weight updates when it was requested."""
    environment: str = ""
    """The name of its tasks in a `TaskMixture`."""
    agent: str = ""
    """The agent, if episodes of several were split by agent."""
    policy: str = ""
    """The model server that this group trains, in collections with several trained ones."""

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def rewards(self) -> list[float | None]:
        return [sample.reward for sample in self.samples]

    @property
    def trainable(self) -> list[bool]:
        return [sample.is_trainable for sample in self.samples]


@dataclass(frozen=True, slots=True)
class Batch:
    """Every requested rollout, by group, in task order."""

    groups: tuple[Group, ...]
    seconds: float = 0.0
    logprob_retries: int = 0
    """Rollouts rerun because logprobs were missing or not finite."""

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    @property
    def samples(self) -> Iterator[Sample]:
        return (sample for group in self.groups for sample in group.samples)

    def masked(self) -> dict[str, int]:
        """The number of masked samples by reason."""
        return dict(Counter(sample.mask_reason.value for sample in self.samples if sample.mask_reason is not None))
