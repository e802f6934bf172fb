"""Whole sequences from a ledger: segments for trainers, and the repeated form that other tools read from items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.types.tokens import LEDGER, SCHEMA_VERSION, TOKEN_CALL, ForkReason, TokenLedger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import TokenCall


class BadLedger(ValueError):  # noqa: N818 - the record's fault, named where it is seen
    """A ledger that does not hold together."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sequence of ids in which every prompt extends what was sampled before it."""

    calls: tuple[int, ...]
    """Numbers of its calls, in order."""
    parent: int | None
    """The call of another segment that it departs from."""
    reason: ForkReason
    ids: list[int]
    mask: list[int]
    """1 exactly on what these calls sampled and nothing masks. What another segment sampled is context here."""
    logprobs: list[float]
    """Of the ids with mask 1; 0.0 elsewhere."""
    shared: int
    """Ids at the start that are another segment's."""


def read_ledger(record: JsonObject) -> TokenLedger | None:
    """The ledger of a record, checked; None when it has none."""
    packed = record.get(LEDGER)
    if packed is None:
        return None
    try:
        ledger = msgspec.convert(packed, TokenLedger)
    except msgspec.ValidationError as error:
        raise BadLedger(f"the token ledger cannot be read: {error}") from error
    if ledger.schema_version > SCHEMA_VERSION:
        raise BadLedger(f"the token ledger has schema version {ledger.schema_version}, known is {SCHEMA_VERSION}")
    check_ledger(ledger)
    return ledger


def pack_ledger(ledger: TokenLedger) -> JsonObject:
    """A ledger as records carry it."""
    packed: JsonObject = msgspec.to_builtins(ledger)
    return {"schema_version": SCHEMA_VERSION, **packed}


def check_ledger(ledger: TokenLedger) -> None:
    """Raises BadLedger unless every entry fits its parent and itself."""
    ends: list[int] = []
    for number, call in enumerate(ledger.calls):
        if call.parent is not None and not 0 <= call.parent < number:
            raise BadLedger(f"call {number} continues call {call.parent}, which does not precede it")
        limit = 0 if call.parent is None else ends[call.parent]
        if call.keep > limit or (call.reason is ForkReason.EXTENDS and call.keep != limit):
            raise BadLedger(f"call {number} keeps {call.keep} ids of {limit}")
        if sum(count for _, count in call.sources) != len(call.delta):
            raise BadLedger(f"call {number} has {len(call.delta)} prompt ids, and sources for another number")
        if len(call.logprobs) != (0 if call.masked else len(call.sampled)):
            raise BadLedger(f"call {number} has {len(call.sampled)} sampled ids and {len(call.logprobs)} logprobs")
        ends.append(call.keep + len(call.delta) + len(call.sampled))


def ids_of(calls: Sequence[TokenCall], number: int) -> list[int]:
    """Prompt and generation of a call."""
    chain: list[tuple[TokenCall, int | None]] = []
    cursor, upto = number, None
    while True:
        call = calls[cursor]
        chain.append((call, upto))
        if call.parent is None:
            break
        cursor, upto = call.parent, call.keep
    ids: list[int] = []
    for call, keep in reversed(chain):
        ids += call.delta
        ids += call.sampled
        if keep is not None:
            del ids[keep:]
    return ids


def bundles(ledger: TokenLedger) -> Iterator[JsonObject | None]:
    """For each call the three training fields, prompts whole; None for a call that must not be trained on."""
    for number, call in enumerate(ledger.calls):
        if call.masked:
            yield None
            continue
        whole = ids_of(ledger.calls, number)
        yield {
            "prompt_token_ids": whole[: len(whole) - len(call.sampled)],
            "generation_token_ids": list(call.sampled),
            "generation_log_probs": list(call.logprobs),
        }


def with_bundles(record: JsonObject) -> JsonObject:
    """The record with training fields on its output items, as NeMo Gym's readers expect them, and without a ledger."""
    ledger = read_ledger(record)
    if ledger is None:
        return record
    by_call = list(bundles(ledger))
    response = record["response"]
    output = [_with_bundle(item, by_call) for item in response["output"]]
    rest = {key: value for key, value in record.items() if key != LEDGER}
    return {**rest, "response": {**response, "output": output}}


def segments(ledger: TokenLedger) -> list[Segment]:
    """All segments; together they hold every sampled token once with mask 1."""
    chains: list[list[int]] = []
    chain_of: dict[int, int] = {}
    for number, call in enumerate(ledger.calls):
        if call.reason is ForkReason.EXTENDS and call.parent is not None:
            chain_of[number] = chain_of[call.parent]
            chains[chain_of[number]].append(number)
        else:
            chain_of[number] = len(chains)
            chains.append([number])
    return [_segment(ledger.calls, chain) for chain in chains]


def _segment(calls: Sequence[TokenCall], chain: list[int]) -> Segment:
    first = calls[chain[0]]
    ids = ids_of(calls, first.parent)[: first.keep] if first.parent is not None else []
    mask, logprobs = [0] * len(ids), [0.0] * len(ids)
    for number in chain:
        call = calls[number]
        ids += call.delta
        mask += [0] * len(call.delta)
        logprobs += [0.0] * len(call.delta)
        ids += call.sampled
        mask += [0 if call.masked else 1] * len(call.sampled)
        logprobs += [0.0] * len(call.sampled) if call.masked else call.logprobs
    return Segment(tuple(chain), first.parent, first.reason, ids, mask, logprobs, first.keep)


def _with_bundle(item: Any, by_call: list[JsonObject | None]) -> Any:
    if not isinstance(item, dict) or TOKEN_CALL not in item:
        return item
    rest = {key: value for key, value in item.items() if key != TOKEN_CALL}
    return {**rest, **(by_call[item[TOKEN_CALL]] or {})}
