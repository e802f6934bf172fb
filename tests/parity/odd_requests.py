"""What is around the output in a request: the create params, the response object; and the verdicts of a whole run."""

from __future__ import annotations

import random
from typing import Any, Final

from tests.helpers.environments import called, said
from tests.parity.odd_values import mutate_value

_TOOL: Final = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}
_FIELDS: Final[tuple[tuple[str, Any], ...]] = (
    *(("status", "completed"), ("status", "incomplete"), ("status", "failed"), ("incomplete_details", None)),
    *(("incomplete_details", {"reason": "max_output_tokens"}), ("error", {"code": "server_error", "message": "x"})),
    *(("output_text", "\\boxed{B}"), ("metadata", {"a": "b"}), ("created_at", 1), ("model", ""), ("tools", [_TOOL])),
    *(
        ("tool_choice", {"type": "function", "name": "f"}),
        ("temperature", 1.0),
        ("instructions", "Be brief."),
        ("x", 1),
    ),
    *(("reasoning", {"effort": "high"}), ("text", {"format": {"type": "text"}}), ("parallel_tool_calls", False)),
    *(("usage", None), ("truncation", "disabled"), ("service_tier", "default"), ("previous_response_id", "r0")),
)
_USAGE: Final = {
    "input_tokens": 12,
    "output_tokens": 7,
    "total_tokens": 19,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 3},
}


def mutate_response(response: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The response object with a field more, less or of another value, as of other servers, or cut off by a limit."""
    kind = chance.random()
    if kind < 0.2:
        name = chance.choice(("id", "created_at", "model", "object", "parallel_tool_calls", "tool_choice", "tools"))
        return {key: value for key, value in response.items() if key != name}
    if kind < 0.4:
        return {**response, "usage": _USAGE}
    name, value = chance.choice(_FIELDS)
    return {**response, name: value}


def mutate_params(params: dict[str, Any], texts: list[str], chance: random.Random) -> dict[str, Any]:
    """Create params with another kind of input, or settings of a model that say nothing of the answer."""
    if params.get("input") and chance.random() < 0.4:
        changed = mutate_value(params, chance)
        return changed if isinstance(changed, dict) else params
    text, other = (chance.choice(texts or [""]) for _ in range(2))
    part = {"type": "input_text", "text": text}
    inputs: tuple[Any, ...] = (
        text,
        [{"role": "user", "content": text}],
        [{"role": "user", "content": [part]}],
        [{"role": "user", "content": [part, {"type": "input_text", "text": other}]}],
        [{"role": "system", "content": other}, {"role": "user", "content": text}],
        [{"role": "developer", "content": other}, {"type": "message", "role": "user", "content": text}],
        [{"role": "user", "content": other}, {"role": "assistant", "content": text}, {"role": "user", "content": text}],
        [{"role": "user", "content": text}, said(other), {"role": "user", "content": [part]}],
        [
            {"role": "user", "content": text},
            called("f", {}),
            {"type": "function_call_output", "call_id": "c", "output": other},
        ],
        [{"role": "assistant", "content": text}],
        [{"role": "system", "content": text}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": []}],
        [],
    )
    settings: dict[str, Any] = chance.choice(
        (
            {},
            {"instructions": other},
            {"temperature": 0.0, "top_p": 1.0, "max_output_tokens": 64},
            {"tools": [_TOOL], "tool_choice": "required", "parallel_tool_calls": False},
            {"metadata": {"a": "b"}, "reasoning": {"effort": "low"}},
        )
    )
    return {**params, "input": chance.choice(inputs), **settings}


def make_run(verdicts: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """The verdicts of a run as they are sent to `/aggregate_metrics`: some tasks with some rollouts each, in order."""
    rows = []
    for task in range(chance.choice((1, 1, 2, 3, 6))):
        pool = chance.sample(verdicts, min(chance.randint(1, 3), len(verdicts)))
        indices = sorted(chance.sample(range(8), chance.choice((1, 2, 4, 4, 5))))
        for rollout in indices if chance.random() < 0.3 else range(len(indices)):
            row = {**chance.choice(pool), "_ng_task_index": task * 3, "_ng_rollout_index": rollout}
            if chance.random() < 0.15:
                row["reward"] = chance.choice((0, 1, 0.5, -1.0, 0.25, True))
            if chance.random() < 0.1:
                row[chance.choice(("latency_s", "turns", "reward", "is_right"))] = chance.choice((3, 0.5, 7.25, True))
            if chance.random() < 0.4:
                row["response"] = {"usage": {**_USAGE, "input_tokens": chance.randint(1, 99)}}
            rows.append(row)
    return rows
