"""Samples a token from logits: temperature, top-k, top-p, min-p. A pure function of the logits and a random number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gymnast.kit import Sampling

Doubles = NDArray[np.float64]


def log_probabilities(logits: NDArray[np.float32]) -> Doubles:
    """The log-probabilities of the model's own distribution, row by row."""
    exact = logits.astype(np.float64)
    exact -= exact.max(axis=-1, keepdims=True)
    exact -= np.log(np.exp(exact).sum(axis=-1, keepdims=True))
    return exact


def choose(logprobs: Doubles, sampling: Sampling, draw: float) -> int:
    """The token selected by `draw`, uniform in [0, 1). Temperature 0 takes the most likely one."""
    if sampling.temperature == 0:
        return int(logprobs.argmax())
    shares = np.exp((logprobs - logprobs.max()) / sampling.temperature)
    allowed = _allowed_mask(shares, sampling)
    if allowed is not None:
        shares = np.where(allowed, shares, 0.0)
    heights = shares.cumsum()
    return int(heights.searchsorted(draw * heights[-1], side="right"))


def _allowed_mask(shares: Doubles, sampling: Sampling) -> NDArray[np.bool_] | None:
    """The tokens that may be sampled; None for all. Each rule applies to the original shares."""
    top_k = sampling.top_k if sampling.top_k and 0 < sampling.top_k < len(shares) else None
    if top_k is None and sampling.top_p >= 1 and not sampling.min_p:
        return None
    order = np.argsort(-shares, kind="stable")
    count = len(shares) if top_k is None else top_k
    if sampling.top_p < 1:
        within = shares[order].cumsum() < sampling.top_p * shares.sum()
        count = min(count, int(within.sum()) + 1)  # including the token that passes the bound
    allowed = np.zeros(len(shares), np.bool_)
    allowed[order[:count]] = True
    if sampling.min_p:
        allowed &= shares >= sampling.min_p * shares.max()
    return allowed
