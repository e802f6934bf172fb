"""The audit of a rollout's tokens: what can be proved of them, in figures. Pure over a ledger."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.tokens.export import check_ledger, segments
from gymnast.types.tokens import ForkReason, Source

if TYPE_CHECKING:
    from gymnast.tokens.export import Segment
    from gymnast.types.tokens import TokenCall, TokenLedger


class SegmentAudit(msgspec.Struct, frozen=True):
    """One segment of a rollout."""

    reason: str
    parent: int | None
    calls: int
    tokens: int
    trained: int
    """Ids with mask 1."""
    shared: int


class TokenAudit(msgspec.Struct, frozen=True):
    """What a ledger shows."""

    calls: int
    segments: list[SegmentAudit]
    drift: int
    """Tokens of earlier turns that an engine rendered differently; 0 when prompts are sent as ids."""
    drift_at: list[tuple[int, int]]
    """Where: the call, and the first token that differs."""
    ids_sent: int
    """Calls whose prompts were sent as ids."""
    tokens: int
    """All ids, each counted once."""
    sources: dict[str, int]
    logprob_modes: dict[str, int]
    """Calls by mode."""
    weight_versions: dict[str, int]
    """Sampled tokens by the weights they come from; `unknown` where the engine does not say."""
    finishes: dict[str, int]
    masked: dict[str, int]
    """Sampled tokens that must not be trained on, by reason."""
    masked_share: float

    @property
    def is_exact(self) -> bool:
        """Tokens trained on are tokens sampled."""
        return self.drift == 0


def audit(ledger: TokenLedger) -> TokenAudit:
    """Raises BadLedger when the ledger does not hold together."""
    check_ledger(ledger)
    calls = ledger.calls
    sampled = sum(len(call.sampled) for call in calls)
    masked = Counter[str]()
    for call in calls:
        if call.masked:
            masked[call.masked] += len(call.sampled)
    drifts = [(number, call.drift) for number, call in enumerate(calls) if call.drift is not None]
    return TokenAudit(
        calls=len(calls),
        segments=[_segment(segment) for segment in segments(ledger)],
        drift=sum(_lost(calls, number, place) for number, place in drifts),
        drift_at=drifts,
        ids_sent=sum(call.ids_sent for call in calls),
        tokens=sampled + sum(len(call.delta) for call in calls),
        sources=_sources(calls),
        logprob_modes=dict(Counter(call.logprob_mode for call in calls)),
        weight_versions=_versions(calls),
        finishes=dict(Counter(call.finish for call in calls)),
        masked=dict(masked),
        masked_share=masked.total() / sampled if sampled else 0.0,
    )


def as_json(found: TokenAudit) -> dict[str, Any]:
    """The audit as data."""
    return {**msgspec.to_builtins(found), "exact": found.is_exact}


def _segment(segment: Segment) -> SegmentAudit:
    return SegmentAudit(
        segment.reason.value,
        segment.parent,
        len(segment.calls),
        len(segment.ids),
        sum(segment.mask),
        segment.shared,
    )


def _lost(calls: list[TokenCall], number: int, place: int) -> int:
    """Ids of the parent that the engine's own prompt does not have at their place."""
    parent = calls[number].parent
    if parent is None:
        return 1
    before = calls[parent]
    return before.keep + len(before.delta) + len(before.sampled) - place


def _sources(calls: list[TokenCall]) -> dict[str, int]:
    found = Counter[str]()
    for call in calls:
        for source, count in call.sources:
            found[Source(source).value] += count
        found[Source.SAMPLED.value] += len(call.sampled)
    return dict(found)


def _versions(calls: list[TokenCall]) -> dict[str, int]:
    found = Counter[str]()
    for call in calls:
        known = 0
        for span in call.weights:
            found[span.version] += span.end - span.start
            known += span.end - span.start
        if known < len(call.sampled):
            found["unknown"] += len(call.sampled) - known
    return dict(found)


def forks(found: TokenAudit) -> dict[str, int]:
    """How often a segment began for which reason, the first ones left out."""
    return dict(Counter(each.reason for each in found.segments if each.reason != ForkReason.FIRST))
