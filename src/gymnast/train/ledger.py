"""Validates the token ledger of a record and splits it into segments. Pure.

A ledger comes from other processes and third-party servers. Whatever it contains, the result is consistent segments or
BadLedger; calls without usable logprobs are masked and reported.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.tokens.export import BadLedger, check_ledger, segments
from gymnast.tokens.items import ledger_from_items
from gymnast.train.samples import MIXED, MaskReason, Segment, VersionSpan
from gymnast.types.tokens import SCHEMA_VERSION, TokenLedger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.tokens.export import Segment as LedgerSegment
    from gymnast.types.tokens import TokenCall

_MAX_LOGPROB: Final = 1e-3
"""Rounding may lift a logprob slightly above zero; a larger value is not a logprob."""
_MIN_LOGPROB: Final = -9999.0
"""Inference servers write this for NaN and minus infinity."""
_NULL_START: Final = ord("n")
_MAX_ID: Final = 2**31 - 1
_LEDGER: Final = msgspec.json.Decoder(TokenLedger)
_ANY: Final = msgspec.json.Decoder()


class Share(StrEnum):
    """How the segments of a rollout share its reward."""

    TOKENS = "tokens"
    """In proportion to its sampled tokens."""
    EQUAL = "equal"
    LAST = "last"
    """The last segment gets all of it."""


def ledger_of(packed: msgspec.Raw | None, response: msgspec.Raw | None) -> tuple[TokenLedger | None, list[int]]:
    """The validated ledger of a record, from its field or its items, and the calls without usable logprobs.

    The ledger is None if the record has none. Raises BadLedger.
    """
    if packed is None or memoryview(packed)[0] == _NULL_START:
        packed = _ledger_from_items(response)
        if packed is None:
            return None, []
    try:
        ledger = _LEDGER.decode(packed)
    except msgspec.ValidationError:
        ledger = _mask_null_logprobs(_ANY.decode(packed))
    if ledger.schema_version > SCHEMA_VERSION:
        raise BadLedger(f"the token ledger has schema version {ledger.schema_version}; supported: {SCHEMA_VERSION}")
    for number, call in enumerate(ledger.calls):
        if not call.masked and not _are_logprobs(call.logprobs, len(call.sampled)):
            ledger.calls[number] = msgspec.structs.replace(call, logprobs=[], masked=MaskReason.BAD_LOGPROBS.value)
    check_ledger(ledger)
    for number, call in enumerate(ledger.calls):
        _check_call(number, call)
    return ledger, [number for number, call in enumerate(ledger.calls) if call.masked]


def _ledger_from_items(response: msgspec.Raw | None) -> msgspec.Raw | None:
    """The token ids of a response's items, as a ledger."""
    if response is None:
        return None
    try:
        ledger = ledger_from_items(_ANY.decode(response))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadLedger(f"cannot read the token ids of the output items: {error!r}") from error
    return msgspec.Raw(msgspec.json.encode(ledger)) if ledger is not None else None


def _mask_null_logprobs(packed: Any) -> TokenLedger:
    """Parse a ledger with null logprobs (JSON has no NaN) and mask those calls; strict in everything else."""
    calls = packed.get("calls") if isinstance(packed, dict) else None
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and not call.get("masked"):
            logprobs = call.get("logprobs")
            if not isinstance(logprobs, list) or any(value is None for value in logprobs):
                call |= {"logprobs": [], "masked": MaskReason.BAD_LOGPROBS.value}
    try:
        return msgspec.convert(packed, TokenLedger)
    except msgspec.ValidationError as error:
        raise BadLedger(f"cannot read the token ledger: {error}") from error


def _are_logprobs(values: Sequence[float], count: int) -> bool:
    if len(values) != count:
        return False
    logprobs = np.asarray(values, dtype=np.float64)
    return bool(((logprobs > _MIN_LOGPROB) & (logprobs <= _MAX_LOGPROB)).all())  # also false for NaN


def _check_call(number: int, call: TokenCall) -> None:
    """Check what `check_ledger` assumes. Raises BadLedger."""
    if call.keep < 0:
        raise BadLedger(f"call {number} keeps {call.keep} ids")
    if any(ids and not 0 <= min(ids) <= max(ids) <= _MAX_ID for ids in (call.delta, call.sampled)):
        raise BadLedger(f"call {number} has invalid token ids")
    if any(not 0 <= span.start <= span.end <= len(call.sampled) for span in call.weights):
        raise BadLedger(f"call {number} has weight spans beyond its tokens")
    if any(after.start < before.end for before, after in pairwise(call.weights)):
        raise BadLedger(f"call {number} has weight spans that overlap")


def segments_of(ledger: TokenLedger, share: Share) -> tuple[Segment, ...]:
    """The segments of a validated ledger, with their shares of the reward."""
    parts = segments(ledger)
    segment_of_call = {call: index for index, part in enumerate(parts) for call in part.calls}
    shares = _shares([sum(part.mask) for part in parts], share)
    return tuple(
        _make_segment(ledger.calls, part, segment_of_call, part_share)
        for part, part_share in zip(parts, shares, strict=True)
    )


def _make_segment(
    calls: Sequence[TokenCall], part: LedgerSegment, segment_of_call: dict[int, int], share: float
) -> Segment:
    turns: list[tuple[int, int]] = []
    versions: list[VersionSpan] = []
    at = part.shared
    for number in part.calls:
        call = calls[number]
        at += len(call.delta)
        turns.append((at, at + len(call.sampled)))
        if not call.masked:
            versions += [VersionSpan(span.version, at + span.start, at + span.end) for span in call.weights]
        at += len(call.sampled)
    modes = {calls[number].logprob_mode for number in part.calls}
    temperatures = {calls[number].temperature for number in part.calls}
    return Segment(
        np.array(part.ids, dtype=np.int32),
        np.array(part.mask, dtype=np.uint8),
        np.array(part.logprobs, dtype=np.float32),
        tuple(turns),
        tuple(versions),
        part.reason,
        None if part.parent is None else segment_of_call[part.parent],
        part.shared,
        share,
        modes.pop() if len(modes) == 1 else MIXED,
        temperatures.pop() if len(temperatures) == 1 else None,
        tuple(part.calls),
        calls[part.calls[0]].policy,
        part.experts,
    )


def _shares(trained: list[int], share: Share) -> list[float]:
    total, number = sum(trained), len(trained)
    if share is Share.LAST:
        return [0.0] * (number - 1) + [1.0] * bool(number)
    if share is Share.EQUAL or not total:
        return [1 / number for _ in trained]
    return [count / total for count in trained]
