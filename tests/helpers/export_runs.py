"""Runs for tests of exports: records as agents write them, in a folder of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.helpers.jsonl import write_jsonl

TOOL = {
    "type": "function",
    "name": "look",
    "description": "Look at something.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    "strict": True,
}


def says(text: str) -> dict[str, Any]:
    """An assistant message."""
    return {
        "type": "message",
        "id": "msg",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def thinks(text: str) -> dict[str, Any]:
    """A reasoning item."""
    return {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": text}]}


def calls(name: str, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    """A tool call."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


def returns(output: Any, call_id: str = "c1") -> dict[str, Any]:
    """A tool's output."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def rollout(
    task: int = 0,
    number: int = 0,
    reward: Any = 1.0,
    output: Sequence[dict[str, Any]] | None = None,
    prompt: Any = None,
    params: dict[str, Any] | None = None,
    response: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A scored record."""
    return {
        "responses_create_params": {"input": prompt if prompt is not None else f"question {task}", **(params or {})},
        "response": {
            "output": list(output) if output is not None else [says(f"answer {task}.{number}")],
            "model": "m",
            "incomplete_details": None,
            **(response or {}),
        },
        "reward": reward,
        **more,
        "agent_ref": {"name": "agent"},
        "_ng_task_index": task,
        "_ng_rollout_index": number,
    }


def failed(task: int, number: int, kind: str = "agent_error", *, final: bool = True) -> dict[str, Any]:
    """A failed attempt."""
    return {
        "_ng_failure_class": kind,
        "_ng_failure_terminal": final,
        "_ng_task_index": task,
        "_ng_rollout_index": number,
    }


def write_run(
    folder: Path, rows: Sequence[Any], *, name: str = "run", failures: Sequence[Any] = (), labels: Sequence[Any] = ()
) -> Path:
    """A run in a folder; returns its output file."""
    folder.mkdir(parents=True, exist_ok=True)
    output = write_jsonl(folder / f"{name}.jsonl", rows)
    seen = {(row["_ng_task_index"], row["_ng_rollout_index"]): row for row in rows}
    plan = [
        {
            "responses_create_params": row["responses_create_params"],
            "expected_answer": "x",
            "agent_ref": {"name": "agent"},
            "_ng_task_index": task,
            "_ng_rollout_index": number,
        }
        for (task, number), row in sorted(seen.items())
    ]
    write_jsonl(folder / f"{name}_materialized_inputs.jsonl", plan)
    if failures:
        write_jsonl(folder / f"{name}_failures.jsonl", failures)
    if labels:
        write_jsonl(folder / f"{name}_annotations.jsonl", labels)
    return output
