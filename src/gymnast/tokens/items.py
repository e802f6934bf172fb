"""Ledgers of rollouts whose output items hold whole prompts, as other projects' servers return them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.tokens.conversation import count_shared_ids
from gymnast.tokens.export import pack_ledger
from gymnast.types.tokens import TOKEN_CALL, ForkReason, Source, TokenCall, TokenLedger

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

_PROMPT, _SAMPLED, _LOGPROBS = TRAINING_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
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
        item[TOKEN_CALL] = len(calls)
        calls.append(call)
        previous = prompt + sampled
    if (response.get("incomplete_details") or {}).get("reason") == _LENGTH:
        calls[-1] = msgspec.structs.replace(calls[-1], finish="length")
    return pack_ledger(TokenLedger(calls, str(response.get("model") or "")))


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
