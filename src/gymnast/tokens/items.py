"""Output items that hold whole prompts, as other projects' servers and clients send them: ledgers made of them, and the
tokens of a conversation's last turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.tokens.conversation import CallTokens, count_shared_ids
from gymnast.tokens.experts import new_rows
from gymnast.tokens.export import pack_ledger
from gymnast.types.items import ROUTED_EXPERTS, TRAINING_FIELDS
from gymnast.types.responses import is_model_turn
from gymnast.types.tokens import TOKEN_CALL, ForkReason, Source, TokenCall, TokenLedger

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import RoutedExperts

_PROMPT, _SAMPLED, _LOGPROBS = TRAINING_FIELDS
_LENGTH: Final = "max_output_tokens"


def ledger_from_items(response: Any) -> JsonObject | None:
    """Move the ids of items into a ledger, which the items then refer to; None if there are none."""
    items = [item for item in _items(response) if item.get(_SAMPLED) and item.get(_LOGPROBS)]
    if not items:
        return None
    calls: list[TokenCall] = []
    previous: list[int] = []
    for item in items:
        prompt, sampled, logprobs = (item.pop(name) for name in TRAINING_FIELDS)
        call = _call(previous, prompt, sampled, logprobs, len(calls))
        if item.get(ROUTED_EXPERTS) is not None:
            experts = _experts(item.pop(ROUTED_EXPERTS), call.keep, len(prompt) + len(sampled))
            call = msgspec.structs.replace(call, experts=experts)
        item[TOKEN_CALL] = len(calls)
        calls.append(call)
        previous = prompt + sampled
    if (response.get("incomplete_details") or {}).get("reason") == _LENGTH:
        calls[-1] = msgspec.structs.replace(calls[-1], finish="length")
    return pack_ledger(TokenLedger(calls, str(response.get("model") or "")))


def tokens_of_last_turn(items: Any) -> CallTokens | None:
    """The tokens that a client sends with the last turn of the model; None if there are none or only some."""
    for item in reversed(items if isinstance(items, list) else []):
        if not is_model_turn(item):
            continue
        prompt, sampled, logprobs = (item.get(name) for name in TRAINING_FIELDS)
        if not prompt or not sampled or logprobs is None:
            return None
        return CallTokens(prompt, sampled, logprobs)
    return None


def _experts(reported: Any, keep: int, length: int) -> RoutedExperts | None:
    from gymnast.tokens.expert_arrays import parse_experts  # noqa: PLC0415 - numpy, for models with experts only

    return new_rows(parse_experts(reported), keep, length)


def _items(response: Any) -> list[JsonObject]:
    output = response.get("output") if isinstance(response, dict) else None
    return [item for item in output or () if isinstance(item, dict)]


def _call(previous: list[int], prompt: list[int], sampled: list[int], logprobs: list[float], number: int) -> TokenCall:
    keep = count_shared_ids(previous, len(previous), prompt)
    extends = bool(number) and keep == len(previous)
    reason = ForkReason.EXTENDS if extends else ForkReason.ENGINE_RETOKENISED if number else ForkReason.FIRST
    return TokenCall(
        reason=reason,
        delta=prompt[keep:],
        sources=[(Source.PROMPT, len(prompt) - keep)] if len(prompt) > keep else [],
        sampled=sampled,
        logprobs=logprobs,
        finish="stop",
        parent=number - 1 if number else None,
        keep=keep,
        ids_sent=False,
        drift=None if extends or not number else keep,
    )
