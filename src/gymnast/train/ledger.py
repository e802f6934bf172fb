"""The ledger of a record as far as it can be trusted, laid out as segments. Pure.

A ledger comes from other processes and from servers written elsewhere. Whatever is in it, the result is segments that
hold together or BadLedger; calls without usable logprobs are masked, and told.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast.tokens.export import BadLedger, check_ledger, segments
from gymnast.tokens.items import ledger_of_items
from gymnast.train.samples import MIXED, MaskReason, Segment, VersionSpan
from gymnast.types.tokens import SCHEMA_VERSION, TokenLedger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.tokens.export import Segment as LedgerSegment
    from gymnast.types.tokens import TokenCall

_HIGHEST: Final = 1e-3
"""Rounding lifts a logprob a little above zero; more than this is no logprob."""
_LOWEST: Final = -9999.0
"""Engines write this for NaN and for minus infinity."""
_NULL_STARTS: Final = ord("n")
_LARGEST_ID: Final = 2**31 - 1
_LEDGER: Final = msgspec.json.Decoder(TokenLedger)
_ANY: Final = msgspec.json.Decoder()


class Share(StrEnum):
    """How the segments of a rollout share its reward."""

    TOKENS = "tokens"
    """By how many tokens each sampled."""
    EQUAL = "equal"
    LAST = "last"
    """The last segment has all of it."""


def ledger_of(packed: msgspec.Raw | None, response: msgspec.Raw | None) -> tuple[TokenLedger | None, list[int]]:
    """The ledger that a record holds or that its items make, checked, and its calls without usable logprobs.

    None where there is none. Raises BadLedger.
    """
    if packed is None or memoryview(packed)[0] == _NULL_STARTS:
        packed = _of_items(response)
        if packed is None:
            return None, []
    try:
        ledger = _LEDGER.decode(packed)
    except msgspec.ValidationError:
        ledger = _with_null_logprobs_masked(_ANY.decode(packed))
    if ledger.schema_version > SCHEMA_VERSION:
        raise BadLedger(f"the token ledger has schema version {ledger.schema_version}, known is {SCHEMA_VERSION}")
    for number, call in enumerate(ledger.calls):
        if not call.masked and not _are_logprobs(call.logprobs, len(call.sampled)):
            ledger.calls[number] = msgspec.structs.replace(call, logprobs=[], masked=MaskReason.BAD_LOGPROBS.value)
    check_ledger(ledger)
    for number, call in enumerate(ledger.calls):
        _check_call(number, call)
    return ledger, [number for number, call in enumerate(ledger.calls) if call.masked]


def _of_items(response: msgspec.Raw | None) -> msgspec.Raw | None:
    """The ids that items of a response carry, as a ledger."""
    if response is None:
        return None
    try:
        made = ledger_of_items(_ANY.decode(response))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadLedger(f"the token ids of the output items cannot be read: {error!r}") from error
    return msgspec.Raw(msgspec.json.encode(made)) if made is not None else None


def _with_null_logprobs_masked(packed: Any) -> TokenLedger:
    """A ledger in which logprobs are null: JSON has no NaN. Those calls are masked; all else is as strict as ever."""
    calls = packed.get("calls") if isinstance(packed, dict) else None
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and not call.get("masked"):
            given = call.get("logprobs")
            if not isinstance(given, list) or any(value is None for value in given):
                call |= {"logprobs": [], "masked": MaskReason.BAD_LOGPROBS.value}
    try:
        return msgspec.convert(packed, TokenLedger)
    except msgspec.ValidationError as error:
        raise BadLedger(f"the token ledger cannot be read: {error}") from error


def _are_logprobs(values: Sequence[float], count: int) -> bool:
    if len(values) != count:
        return False
    found = np.asarray(values, dtype=np.float64)
    return bool(((found > _LOWEST) & (found <= _HIGHEST)).all())  # false for NaN as well


def _check_call(number: int, call: TokenCall) -> None:
    """What the ledger's own check takes for granted. Raises BadLedger."""
    if call.keep < 0:
        raise BadLedger(f"call {number} keeps {call.keep} ids")
    if any(ids and not 0 <= min(ids) <= max(ids) <= _LARGEST_ID for ids in (call.delta, call.sampled)):
        raise BadLedger(f"call {number} has numbers that are no token ids")
    if any(not 0 <= span.start <= span.end <= len(call.sampled) for span in call.weights):
        raise BadLedger(f"call {number} tells weights of tokens that it does not have")


def segments_of(ledger: TokenLedger, share: Share) -> tuple[Segment, ...]:
    found = segments(ledger)
    segment_of_call = {call: place for place, one in enumerate(found) for call in one.calls}
    shares = _shares([sum(one.mask) for one in found], share)
    return tuple(_segment(ledger.calls, one, segment_of_call, part) for one, part in zip(found, shares, strict=True))


def _segment(calls: Sequence[TokenCall], one: LedgerSegment, segment_of_call: dict[int, int], share: float) -> Segment:
    turns: list[tuple[int, int]] = []
    versions: list[VersionSpan] = []
    at = one.shared
    for number in one.calls:
        call = calls[number]
        at += len(call.delta)
        turns.append((at, at + len(call.sampled)))
        if not call.masked:
            versions += [VersionSpan(span.version, at + span.start, at + span.end) for span in call.weights]
        at += len(call.sampled)
    modes = {calls[number].logprob_mode for number in one.calls}
    temperatures = {calls[number].temperature for number in one.calls}
    return Segment(
        np.array(one.ids, dtype=np.int32),
        np.array(one.mask, dtype=np.uint8),
        np.array(one.logprobs, dtype=np.float32),
        tuple(turns),
        tuple(versions),
        one.reason,
        None if one.parent is None else segment_of_call[one.parent],
        one.shared,
        share,
        modes.pop() if len(modes) == 1 else MIXED,
        temperatures.pop() if len(temperatures) == 1 else None,
    )


def _shares(trained: list[int], share: Share) -> list[float]:
    total, number = sum(trained), len(trained)
    if share is Share.LAST:
        return [0.0] * (number - 1) + [1.0] * bool(number)
    if share is Share.EQUAL or not total:
        return [1 / number for _ in trained]
    return [count / total for count in trained]
