"""Whole sequences from a ledger: segments for trainers, and training fields on items for other tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.tokens.experts import check_experts, experts_field, experts_of
from gymnast.types.tokens import LEDGER, SCHEMA_VERSION, TOKEN_CALL, ForkReason, TokenLedger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import RoutedExperts, TokenCall


class BadLedger(ValueError):  # noqa: N818 - names what the record has
    """The ledger is unreadable or inconsistent."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sequence of ids in which every prompt extends the tokens before it."""

    calls: tuple[int, ...]
    """The numbers of its calls, in order."""
    parent: int | None
    """The call of another segment that it forks from."""
    reason: ForkReason
    ids: list[int]
    mask: list[int]
    """1 exactly on unmasked tokens sampled by these calls. Tokens sampled by another segment are context here."""
    logprobs: list[float]
    """Of the ids with mask 1; 0.0 elsewhere."""
    shared: int
    """The number of ids at the start that belong to another segment."""
    experts: RoutedExperts | None = None
    """Of all its ids but perhaps the last, if every call reports them."""


def read_ledger(record: JsonObject) -> TokenLedger | None:
    """Read and check the ledger of a record; None if it has none."""
    packed = record.get(LEDGER)
    if packed is None:
        return None
    try:
        ledger = msgspec.convert(packed, TokenLedger)
    except msgspec.ValidationError as error:
        raise BadLedger(f"the token ledger cannot be read: {error}") from error
    if ledger.schema_version > SCHEMA_VERSION:
        raise BadLedger(f"token ledger schema {ledger.schema_version} is newer than this version's {SCHEMA_VERSION}")
    check_ledger(ledger)
    return ledger


def pack_ledger(ledger: TokenLedger) -> JsonObject:
    """A ledger in the form that records hold."""
    packed: JsonObject = msgspec.to_builtins(ledger)
    return {"schema_version": SCHEMA_VERSION, **packed}


def check_ledger(ledger: TokenLedger) -> None:
    """Raises BadLedger unless every call is consistent with itself and its parent."""
    ends: list[int] = []
    for number, call in enumerate(ledger.calls):
        if call.parent is not None and not 0 <= call.parent < number:
            raise BadLedger(f"call {number} continues call {call.parent}, which does not precede it")
        limit = 0 if call.parent is None else ends[call.parent]
        if call.keep > limit or (call.reason is ForkReason.EXTENDS and call.keep != limit):
            raise BadLedger(f"call {number} keeps {call.keep} ids of {limit}")
        if sum(count for _, count in call.sources) != len(call.delta):
            raise BadLedger(f"call {number} has {len(call.delta)} prompt ids, but its sources cover a different number")
        if len(call.logprobs) != (0 if call.masked else len(call.sampled)):
            raise BadLedger(f"call {number} has {len(call.sampled)} sampled ids and {len(call.logprobs)} logprobs")
        ends.append(call.keep + len(call.delta) + len(call.sampled))
        if call.experts is not None and not check_experts(call.experts, call.keep, ends[-1]):
            raise BadLedger(f"call {number} has experts of other tokens than its own")


def ids_of(calls: Sequence[TokenCall], number: int) -> list[int]:
    """The ids of a call's prompt and generation."""
    chain: list[tuple[TokenCall, int | None]] = []
    cursor, end = number, None
    while True:
        call = calls[cursor]
        chain.append((call, end))
        if call.parent is None:
            break
        cursor, end = call.parent, call.keep
    ids: list[int] = []
    for call, keep in reversed(chain):
        ids += call.delta
        ids += call.sampled
        if keep is not None:
            del ids[keep:]
    return ids


def training_fields(ledger: TokenLedger) -> Iterator[JsonObject | None]:
    """The training fields of each call, with whole prompts; None for a call that must not be trained on."""
    for number, call in enumerate(ledger.calls):
        if call.masked:
            yield None
            continue
        ids = ids_of(ledger.calls, number)
        yield {
            "prompt_token_ids": ids[: len(ids) - len(call.sampled)],
            "generation_token_ids": list(call.sampled),
            "generation_log_probs": list(call.logprobs),
            **experts_field(experts_of(ledger.calls, number), len(ids)),
        }


def add_training_fields(record: JsonObject) -> JsonObject:
    """Replace the record's ledger by training fields on its output items, as NeMo Gym's readers expect."""
    ledger = read_ledger(record)
    if ledger is None:
        return record
    by_call = list(training_fields(ledger))
    response = record["response"]
    output = [_add_fields(item, by_call) for item in response["output"]]
    rest = {key: value for key, value in record.items() if key != LEDGER}
    return {**rest, "response": {**response, "output": output}}


def segments(ledger: TokenLedger) -> list[Segment]:
    """All segments of a ledger; every trainable token has mask 1 in exactly one of them."""
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
    experts = experts_of(calls, chain[-1])
    return Segment(tuple(chain), first.parent, first.reason, ids, mask, logprobs, first.keep, experts)


def _add_fields(item: Any, by_call: list[JsonObject | None]) -> Any:
    if not isinstance(item, dict) or TOKEN_CALL not in item:
        return item
    rest = {key: value for key, value in item.items() if key != TOKEN_CALL}
    return {**rest, **(by_call[item[TOKEN_CALL]] or {})}
