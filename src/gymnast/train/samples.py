"""What a trainer gets of a rollout: a sample of one or more segments, a group for each task, a batch of groups.

Nothing is left out and nothing is made up: a rollout that must not be trained on is a sample that says why, and one
that failed is a sample without segments and without a reward.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from gymnast.types.tokens import ForkReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.types.json import JsonObject
    from gymnast.types.task import RolloutKey

Ids = NDArray[np.int32]
Mask = NDArray[np.uint8]
Logprobs = NDArray[np.float32]

UNKNOWN: Final = "unknown"
"""The weights of tokens of which the engine does not say them; logprobs of which it does not say what they are."""
MIXED: Final = "mixed"


class MaskReason(StrEnum):
    """Why a rollout must not be trained on."""

    FAILED = "failed"
    """It has no reward; `failure` says why."""
    NO_TOKENS = "no_tokens"
    """Its record holds neither a ledger nor ids on its items."""
    BAD_LEDGER = "bad_ledger"
    """Its ledger does not hold together."""
    BAD_LOGPROBS = "bad_logprobs"
    """Logprobs of a call are missing or no finite numbers, also after the call was made again."""
    NOTHING_SAMPLED = "nothing_sampled"
    """It has no sampled token, e.g. because its first prompt did not fit the context."""
    ENVIRONMENT = "environment"
    """Agent or environment said so (`mask_sample`)."""
    TRUNCATED = "truncated"
    """It was cut off, and the options say that such rollouts are not trained on."""
    STALE = "stale"
    """It was sampled by weights that are too old."""
    FORKED = "forked"
    """It has several segments, and the trainer takes one sequence for each rollout."""


class Termination(StrEnum):
    """How a rollout ended."""

    NATURAL = "natural"
    """The policy came to an end by itself."""
    LENGTH = "length"
    """Cut off: the limit of the answer or of the context."""
    TURN_LIMIT = "turn_limit"
    """The agent stopped while the policy was calling tools."""
    FAILED = "failed"
    """There is no scored record."""


class VersionSpan(NamedTuple):
    """Tokens `start` to `end` of a segment were sampled by these weights."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A sequence in which every prompt extends what was sampled before it."""

    ids: Ids
    mask: Mask
    """1 exactly on the tokens that were sampled here. What another segment sampled is context."""
    logprobs: Logprobs
    """Of the tokens with mask 1, as the engine reported them; 0 elsewhere."""
    turns: tuple[tuple[int, int], ...]
    """Where each model call's sampled tokens begin and end."""
    versions: tuple[VersionSpan, ...] = ()
    """The weights of sampled tokens, as far as the engine tells them."""
    reason: ForkReason = ForkReason.FIRST
    """Why it is a segment of its own."""
    parent: int | None = None
    """The segment it departs from: its place in the sample."""
    shared: int = 0
    """Tokens at the start that are the parent's."""
    share: float = 1.0
    """Its part of the rollout's reward; the shares of a sample add up to 1."""
    logprob_mode: str = UNKNOWN
    """`raw`, `processed`, `unknown`, or `mixed` where its calls differ."""
    temperature: float | None = 1.0
    """None where its calls differ."""

    @property
    def trained(self) -> int:
        """How many tokens were sampled here."""
        return int(self.mask.sum())

    @property
    def prompt_length(self) -> int:
        """Tokens before the first that was sampled here."""
        return self.turns[0][0] if self.turns else len(self.ids)

    def version_of_tokens(self) -> list[str | None]:
        """The weights of each token; None where it was not sampled here or they are not known."""
        found: list[str | None] = [None] * len(self.ids)
        for version, start, end in self.versions:
            found[start:end] = [version] * (end - start)
        return found


@dataclass(frozen=True, slots=True)
class RolloutFailure:
    """Why a rollout has no reward."""

    kind: str
    """As in the table of failures, or a deadline of the batch."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout."""

    key: RolloutKey
    agent: str
    reward: float | None
    """None for a failure: it has none, and it is not 0."""
    segments: tuple[Segment, ...] = ()
    components: dict[str, float] = field(default_factory=dict)
    """The parts of the reward, where the environment tells them."""
    mask_reason: MaskReason | None = None
    mask_detail: str = ""
    failure: RolloutFailure | None = None
    termination: Termination = Termination.NATURAL
    numbers: dict[str, float] = field(default_factory=dict)
    """The other numbers at the top of the record."""
    drifted_calls: int = 0
    """Model calls whose prompt an engine rendered otherwise than it had been sampled."""
    model: str = ""
    line: bytes | None = field(default=None, repr=False)
    """The record, where the options say that it is kept."""

    @property
    def is_trainable(self) -> bool:
        """Whether its sampled tokens count in a loss."""
        return self.mask_reason is None

    @property
    def is_scored(self) -> bool:
        return self.failure is None

    @property
    def is_truncated(self) -> bool:
        return self.termination in {Termination.LENGTH, Termination.TURN_LIMIT}

    @property
    def turns(self) -> int:
        """Model calls."""
        return sum(len(segment.turns) for segment in self.segments)

    @property
    def trained(self) -> int:
        """Tokens that count in a loss: 0 for a masked one."""
        return sum(segment.trained for segment in self.segments) if self.is_trainable else 0

    @property
    def versions(self) -> tuple[str, ...]:
        """The weights that sampled it, in order of their first token."""
        return tuple(dict.fromkeys(span.version for segment in self.segments for span in segment.versions))

    @property
    def record(self) -> JsonObject | None:
        """The whole record, where it was kept."""
        if self.line is None:
            return None
        found: JsonObject = orjson.loads(self.line)
        return found

    def loss_masks(self) -> list[Mask]:
        """For each segment the mask that a loss takes: all 0 for a masked sample."""
        if self.is_trainable:
            return [segment.mask for segment in self.segments]
        return [np.zeros_like(segment.mask) for segment in self.segments]

    def masked(self, reason: MaskReason, detail: str = "") -> Sample:
        """The same, not to be trained on. A reason that is there already stays."""
        return self if self.mask_reason is not None else replace(self, mask_reason=reason, mask_detail=detail)


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task that are compared with each other, in order."""

    task: int
    samples: tuple[Sample, ...]
    asked_at: int = 0
    """How many weight updates there had been when it was asked for."""

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
    """Every rollout that was requested, by group, in the order in which tasks were given."""

    groups: tuple[Group, ...]
    seconds: float = 0.0
    logprob_retries: int = 0
    """Rollouts that were run again because logprobs were missing or not finite."""

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    @property
    def samples(self) -> Iterator[Sample]:
        return (sample for group in self.groups for sample in group.samples)

    def masked(self) -> dict[str, int]:
        """Samples that must not be trained on, by reason."""
        found: dict[str, int] = {}
        for sample in self.samples:
            if sample.mask_reason is not None:
                found[sample.mask_reason.value] = found.get(sample.mask_reason.value, 0) + 1
        return found
