"""What the ledger asks of an inference engine: ids in, sampled ids with their logprobs out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.wire.trail import Trail

Finish = Literal["stop", "length", "abort"]
LogprobMode = Literal["raw", "processed", "unknown"]
"""raw: of the model's own distribution; processed: after temperature, top-p and the like."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. What an engine cannot do it refuses; nothing here is a wish."""

    max_tokens: int | None = None
    """None: as many as the context still holds."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    """Sampling ends after any of these; the token is part of what was generated."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Further parameters that a request named and the engine may know."""


@dataclass(frozen=True, slots=True)
class WeightSpan:
    """Generated tokens `start` to `end` (of this generation) were sampled by these weights."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Generated:
    """One generation, complete or cut off."""

    token_ids: Sequence[int]
    """Everything sampled, the stop token included when one was sampled."""
    logprobs: Sequence[float]
    """One for each id."""
    finish: Finish
    logprob_mode: LogprobMode = "raw"
    weight_versions: tuple[WeightSpan, ...] = ()
    cached_tokens: int | None = None
    """Prompt tokens the engine did not have to compute again."""


class BadGeneration(ValueError):  # noqa: N818 - what came back is unusable
    """An engine answered with something that is no whole bundle of ids and logprobs."""

    def __init__(self, what: str, generated: Generated | None = None) -> None:
        super().__init__(what)
        self.generated = generated
        """What came, when at least its ids are whole: it can go on as text, but not into training."""


class ContextOverflow(ValueError):  # noqa: N818 - an outcome of the policy
    """The prompt leaves no room for a single token."""


class TokenEngine(Protocol):
    """Samples a continuation of token ids."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, who: Asker) -> Generated:
        """Raises ContextOverflow, BadGeneration, or CallError when the engine failed."""
        ...


class Asker(Protocol):
    """Whose conversation this is: keeps it at one replica and names it in logs."""

    @property
    def session_id(self) -> str: ...

    @property
    def rollout_id(self) -> str | None: ...

    @property
    def trail(self) -> Trail | None: ...


def check_generation(generated: Generated) -> Generated:
    """The generation, if it is whole: as many logprobs as ids, all finite and none above zero but for rounding."""
    ids, logprobs = generated.token_ids, generated.logprobs
    if len(ids) != len(logprobs):
        raise BadGeneration(f"{len(ids)} sampled ids but {len(logprobs)} logprobs", generated)
    if not ids and generated.finish != "abort":
        raise BadGeneration(f"finish is '{generated.finish}' but nothing was sampled")
    for place, value in enumerate(logprobs):
        if not _is_finite(value):
            raise BadGeneration(f"logprob {place} of {len(logprobs)} is {value}", generated)
        if value > 1e-3:
            raise BadGeneration(f"logprob {place} of {len(logprobs)} is {value}, above zero", generated)
    return generated


def _is_finite(value: object) -> bool:
    """Engines answer in JSON, and some say null where they have no number."""
    return isinstance(value, (int, float)) and math.isfinite(value)
