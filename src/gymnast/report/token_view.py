"""The tokens of a rollout for readers: which parts of each model call were prompt and which were sampled.

Reads both forms that records have: the ledger, and whole prompts on output items as NeMo Gym writes them. Ids become
text where the tokenizer that made them is at hand.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from gymnast.report.token_choices import Alternatives, read_choices
from gymnast.tokens.export import BadLedger, read_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.report.token_text import TokenTexts
    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import TokenCall

TRAINING_FIELDS: Final = frozenset(
    {"prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts"}
)
_MAX_IDS: Final = 400
"""Ids to include of each part; beyond it, only the first and last ones."""


def view_tokens(
    record: JsonObject, texts: TokenTexts, max_ids: int = _MAX_IDS, *, with_choices: bool = False
) -> JsonObject | None:
    """The token view of a record; None if it has no tokens. Ids that get a text are added to `texts`.

    Of parts with more than `max_ids` ids, only the first and last ones are included. `with_choices` adds the
    alternatives of tokens where they are recorded, and the tokens of records that have only texts with logprobs.
    """
    choices = Alternatives(record) if with_choices else None
    try:
        ledger = read_ledger(record)
    except BadLedger as error:
        return {"note": str(error), "calls": []}
    if ledger is not None:
        has_text = texts.can_decode(ledger.renderer, ledger.model)
        calls = [_call(number, call, max_ids, choices) for number, call in enumerate(ledger.calls)]
        view: JsonObject = {"model": ledger.model, "calls": calls, "has_text": has_text}
    else:
        calls = list(_item_calls(record, max_ids, choices))
        if not calls:
            return _view_choices(record, max_ids) if with_choices else None
        view = {"calls": calls, "has_text": False}
    if view["has_text"]:
        texts.add(ids for call in calls for part in call["parts"] for ids in (part["ids"], part.get("end", ())))
    return view


def _call(number: int, call: TokenCall, max_ids: int, choices: Alternatives | None) -> JsonObject:
    parts, start = [], 0
    for source, count in call.sources:
        parts.append(_part(source.value, call.delta[start : start + count], max_ids=max_ids))
        start += count
    alternatives = choices.take(call.logprobs) if choices is not None else ()
    sampled = _part("sampled", call.sampled, call.logprobs, max_ids=max_ids, alternatives=alternatives)
    parts.append({**sampled, "masked": call.masked})
    view: JsonObject = {"call": number, "reason": call.reason.value, "finish": call.finish, "parts": parts}
    view |= {"keep": call.keep, "parent": call.parent}
    view |= {"weights": sorted({span.version for span in call.weights})}
    if call.drift is not None:
        view["drift"] = call.drift
    if call.detail is not None:
        view["detail"] = call.detail[:_MAX_IDS]
    return view


def _item_calls(record: JsonObject, max_ids: int, choices: Alternatives | None) -> list[JsonObject]:
    """One call per output item that has ids. Each prompt repeats all tokens before it; only what it adds is a part."""
    response = record.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    calls: list[JsonObject] = []
    before: list[Any] = []
    for item in output if isinstance(output, list) else ():
        prompt, sampled = (_ids(item, name) for name in ("prompt_token_ids", "generation_token_ids"))
        if not prompt and not sampled:
            continue
        keep = len(before) if prompt[: len(before)] == before else 0
        logprobs = item.get("generation_log_probs")
        known = logprobs if isinstance(logprobs, list) else ()
        alternatives = choices.take(known) if choices is not None else ()
        parts = [
            _part("prompt", prompt[keep:], max_ids=max_ids),
            {**_part("sampled", sampled, known, max_ids=max_ids, alternatives=alternatives), "masked": None},
        ]
        reason = "extends" if keep else "first" if not calls else "does not extend the call before"
        parent = len(calls) - 1 if keep else None
        calls.append({"call": len(calls), "reason": reason, "parts": parts, "keep": keep, "parent": parent})
        before = [*prompt, *sampled]
    return calls


def _view_choices(record: JsonObject, max_ids: int) -> JsonObject | None:
    """One call per output text with logprobs, for records without ids: `words` are the texts of the tokens."""
    calls: list[JsonObject] = []
    for choices in read_choices(record):
        words, logprobs, alternatives = (list(column) for column in zip(*choices, strict=True))
        ids = [None] * len(choices)
        part = _part("sampled", ids, logprobs, max_ids=max_ids, alternatives=alternatives, words=words)
        calls.append({"call": len(calls), "reason": "text", "parts": [{**part, "masked": None}], "keep": 0})
    note = "This record has no token ids: these are the tokens of its texts, as the endpoint reported them."
    return {"calls": calls, "has_text": True, "note": note} if calls else None


def _ids(item: Any, name: str) -> list[Any]:
    value = item.get(name) if isinstance(item, dict) else None
    return [token if isinstance(token, int) else None for token in value] if isinstance(value, list) else []


def _part(
    source: str, ids: Sequence[Any], logprobs: Sequence[Any] = (), *, max_ids: int, **columns: Sequence[Any]
) -> JsonObject:
    """A run of tokens from one source: its size, its ids (long ones without their middle), and their logprobs.

    Further columns have a value for each token, or none at all.
    """
    part: JsonObject = {"source": source, "count": len(ids), "ids": list(ids[:max_ids])}
    known = [value for value in logprobs if isinstance(value, int | float) and math.isfinite(value)]
    if known:
        part["logprob"] = round(sum(known) / len(known), 4)
        part["logprobs"] = [_round(value) for value in logprobs[:max_ids]]
    if len(ids) > max_ids:
        half = max_ids // 2
        part["ids"], part["end"] = list(ids[:half]), list(ids[-half:])
        if known:
            part["logprobs"], part["end_logprobs"] = part["logprobs"][:half], [_round(v) for v in logprobs[-half:]]
    for name, values in columns.items():
        if any(values):
            part[name] = list(values[: len(part["ids"])])
            if "end" in part:
                part[f"end_{name}"] = list(values[-len(part["end"]) :])
    return part


def _round(value: Any) -> float | None:
    return round(value, 3) if isinstance(value, int | float) and math.isfinite(value) else None
