"""The token backend interface: token ids in, sampled ids with their logprobs out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.types.tokens import RoutedExperts
    from gymnast.wire.progress import AttemptProgress

Finish = Literal["stop", "length", "abort"]
LogprobMode = Literal["raw", "processed", "unknown"]
"""raw: from the model's distribution; processed: after temperature, top-p and the like."""
_MAX_LOGPROB: Final = 1e-3
"""Rounding may lift a logprob slightly above zero."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. A backend rejects parameters it does not support; none is ignored."""

    max_tokens: int | None = None
    """None: as many as fit in the context."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    """Sampling stops after any of these; the stop token is part of the generation."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Other parameters of the request, which the backend may support."""


@dataclass(frozen=True, slots=True)
class WeightSpan:
    """Tokens `start` to `end` of a generation were sampled with these weights."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class GeneratedTokens:
    """One generation, complete or cut off."""

    token_ids: Sequence[int]
    """All sampled ids, including the stop token if one was sampled."""
    logprobs: Sequence[float]
    """One per id."""
    finish: Finish
    logprob_mode: LogprobMode = "raw"
    weight_versions: tuple[WeightSpan, ...] = ()
    cached_tokens: int | None = None
    """Prompt tokens served from the backend's cache."""
    experts: RoutedExperts | None = None
    """Of prompt and generation, for models with experts whose server reports them."""


class BadGeneration(ValueError):  # noqa: N818 - names what came back
    """The backend's reply is not a complete set of ids and logprobs."""

    def __init__(self, message: str, generated: GeneratedTokens | None = None) -> None:
        super().__init__(message)
        self.generated = generated
        """The generation, if at least its ids are complete: usable as text, but not for training."""


class ContextOverflow(ValueError):  # noqa: N818 - an outcome of the policy
    """The prompt leaves no room for a single token."""


class TokenBackend(Protocol):
    """Samples a continuation of token ids."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, caller: Caller) -> GeneratedTokens:
        """Raises ContextOverflow, BadGeneration, or CallError if the backend failed."""
        ...


class Caller(Protocol):
    """Identifies the conversation of a call: pins it to one replica and names it in logs."""

    @property
    def session_id(self) -> str: ...

    @property
    def rollout_id(self) -> str | None: ...

    @property
    def progress(self) -> AttemptProgress | None: ...


def check_generation(generated: GeneratedTokens) -> GeneratedTokens:
    """Return a complete generation: as many logprobs as ids, all finite, none above zero except for rounding."""
    ids, logprobs = generated.token_ids, generated.logprobs
    if len(ids) != len(logprobs):
        raise BadGeneration(f"{len(ids)} sampled ids but {len(logprobs)} logprobs", generated)
    if not ids and generated.finish != "abort":
        raise BadGeneration(f"finish is '{generated.finish}' but nothing was sampled")
    # NaN and infinities survive a sum: most generations need no look at each value.
    if set(map(type, logprobs)) == {float} and math.isfinite(sum(logprobs)) and max(logprobs) <= _MAX_LOGPROB:
        return generated
    for index, value in enumerate(logprobs):
        if not _is_finite(value):
            raise BadGeneration(f"logprob {index} of {len(logprobs)} is {value}", generated)
        if value > _MAX_LOGPROB:
            raise BadGeneration(f"logprob {index} of {len(logprobs)} is {value}, above zero", generated)
    return generated


def _is_finite(value: object) -> bool:
    """Some servers reply with null where they have no number."""
    return isinstance(value, (int, float)) and math.isfinite(value)
