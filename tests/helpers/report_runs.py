"""Runs for the report's tests: files as collections write them, with whatever a model may have said in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "<svg onload='window.pwned = 3'><a xlink:href='javascript:window.pwned=4'>x</a></svg>",
    "javascript:window.pwned=5",
    "data:text/html,<script>window.pwned=6</script>",
    "<!-- --><!--><script>window.pwned=7</script> ]]> <![CDATA[",
    "<iframe srcdoc='<script>parent.pwned=8</script>'></iframe>",
    "</style><style>body{display:none}</style>",
    "</textarea></title></noscript></dialog></body>",
    "${pwned} {{pwned}} $title %(pwned)s",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00 \x7f \x9b2J",
    "\u202egnp.exe\u202c \u2066isolated\u2069",
    "line\u2028separator\u2029paragraph\ufeff",
    "A" * 5000,
    "\u0301" * 300 + "zalgo",
    "[" * 3000 + "]" * 3000,
    '{"a":' * 500 + "1" + "}" * 500,
    '{"x": "\\ud800"}',
    "مرحبا بالعالم 日本語 👩‍👩‍👧",
)
"""What should be read and never obeyed."""


def record(
    task: int,
    rollout: int,
    reward: float | None,
    text: str = "The answer is B.",
    *,
    tokens: int | None = 20,
    items: Sequence[Any] | None = None,
    prompt: Any = "Which one?",
    **more: Any,
) -> dict[str, Any]:
    """A line of the rollouts."""
    said = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [said]}
    response: dict[str, Any] = {"id": "r", "object": "response", "model": "mock", "output": [*(items or []), message]}
    if tokens is not None:
        response["usage"] = {"input_tokens": 7, "output_tokens": tokens, "total_tokens": 7 + tokens}
    return {
        "responses_create_params": {"input": prompt},
        "response": response,
        **({"reward": reward} if reward is not None else {}),
        **more,
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": more.get("agent", "agent")},
    }


def failed(task: int, rollout: int, kind: str = "model_timeout", **more: Any) -> dict[str, Any]:
    """A line of the failures: the last attempt of a rollout that failed for good."""
    detail = {"kind": kind, "layer": "model_serving", "stage": "model", "message": "no answer", **more}
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "_ng_failure_class": kind,
        "_ng_failure_terminal": True,
        "failure": detail,
    }


def write_run(
    folder: Path,
    records: Iterable[dict[str, Any]],
    *,
    name: str = "run",
    failures: Sequence[dict[str, Any]] | None = (),
    missing: Sequence[tuple[int, int]] = (),
    inputs: bool = True,
) -> Path:
    """The files of a run; without a failures file if that is None."""
    rows = list(records)
    output = folder / f"{name}.jsonl"
    _write(output, rows)
    if failures is not None:
        _write(folder / f"{name}_failures.jsonl", failures)
    if inputs:
        keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in [*rows, *(failures or ())]]
        prompts = {row["_ng_task_index"]: row["responses_create_params"] for row in rows}
        asked = [
            {
                "responses_create_params": prompts.get(task, {"input": "Which one?"}),
                "agent_ref": {"name": "agent"},
                "_ng_task_index": task,
                "_ng_rollout_index": rollout,
            }
            for task, rollout in sorted({*keys, *missing})
        ]
        _write(folder / f"{name}_materialized_inputs.jsonl", asked)
    return output


def grid(tasks: int, repeats: int, solved_in: int = 3) -> list[dict[str, Any]]:
    """Tasks of growing difficulty: rollout r of task t is right if (t + r) is divisible by `solved_in`."""
    return [
        record(task, rollout, float((task + rollout) % solved_in == 0), tokens=10 + 7 * task + rollout)
        for task in range(tasks)
        for rollout in range(repeats)
    ]


def hostile_records() -> list[dict[str, Any]]:
    """Every hostile text in every place where a model or an environment can put one."""
    found = []
    for task, text in enumerate(HOSTILE):
        call = {"type": "function_call", "call_id": f"c{task}", "name": text, "arguments": text}
        result = {"type": "function_call_output", "call_id": f"c{task}", "output": text}
        thought = {"type": "reasoning", "id": "t", "summary": [{"type": "summary_text", "text": text}]}
        hosted = {"type": text, "payload": {text[:50]: [text]}}
        image = {"type": "input_image", "image_url": text}
        prompt = [
            {"role": "system", "content": text},
            {"role": text[:40], "content": text},
            {"role": "user", "content": [{"type": "input_text", "text": text}, image]},
        ]
        for rollout in range(2):
            items = [thought, call, result, hosted]
            found.append(
                record(task, rollout, float(rollout), text, items=items, prompt=prompt, answer=text, agent=text)
            )
    return found


def _write(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
