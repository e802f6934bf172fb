"""The token audit of one rollout: the provable facts about its tokens, as numbers. Pure over a ledger."""

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
    reason: str
    parent: int | None
    calls: int
    tokens: int
    trained: int
    """Ids with mask 1."""
    shared: int


class TokenAudit(msgspec.Struct, frozen=True):
    """The numbers of one ledger."""

    calls: int
    segments: list[SegmentAudit]
    drift: int
    """Tokens of earlier turns that an inference server rendered differently; 0 when prompts are sent as ids."""
    drift_at: list[tuple[int, int]]
    """The calls that drifted, and the first token that differs in each."""
    ids_sent: int
    """Calls whose prompts were sent as ids."""
    tokens: int
    """All ids, each counted once."""
    sources: dict[str, int]
    logprob_modes: dict[str, int]
    """Calls by mode."""
    weight_versions: dict[str, int]
    """Sampled tokens by weight version; `unknown` where the server does not report it."""
    finishes: dict[str, int]
    masked: dict[str, int]
    """Sampled tokens that must not be trained on, by reason."""
    masked_share: float

    @property
    def is_exact(self) -> bool:
        """Whether the tokens trained on are exactly the tokens sampled."""
        return self.drift == 0


def audit(ledger: TokenLedger) -> TokenAudit:
    """Audit a ledger. Raises BadLedger if it is inconsistent."""
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
        drift=sum(_drifted_tokens(calls, number, index) for number, index in drifts),
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


def as_json(result: TokenAudit) -> dict[str, Any]:
    return {**msgspec.to_builtins(result), "exact": result.is_exact}


def _segment(segment: Segment) -> SegmentAudit:
    return SegmentAudit(
        segment.reason.value,
        segment.parent,
        len(segment.calls),
        len(segment.ids),
        sum(segment.mask),
        segment.shared,
    )


def _drifted_tokens(calls: list[TokenCall], number: int, index: int) -> int:
    """The parent's ids from the first difference on."""
    parent = calls[number].parent
    if parent is None:
        return 1
    return calls[parent].keep + len(calls[parent].delta) + len(calls[parent].sampled) - index


def _sources(calls: list[TokenCall]) -> dict[str, int]:
    counts = Counter[str]()
    for call in calls:
        for source, count in call.sources:
            counts[Source(source).value] += count
        counts[Source.SAMPLED.value] += len(call.sampled)
    return dict(counts)


def _versions(calls: list[TokenCall]) -> dict[str, int]:
    counts = Counter[str]()
    for call in calls:
        known = 0
        for span in call.weights:
            counts[span.version] += span.end - span.start
            known += span.end - span.start
        if known < len(call.sampled):
            counts["unknown"] += len(call.sampled) - known
    return dict(counts)


def count_forks(result: TokenAudit) -> dict[str, int]:
    """The number of segments by fork reason, except first ones."""
    return dict(Counter(segment.reason for segment in result.segments if segment.reason != ForkReason.FIRST))
