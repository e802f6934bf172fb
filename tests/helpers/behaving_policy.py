"""A policy that behaves in each rollout as `behave.json` in the current folder says: right, wrong, cut, rejected, …

Its rows are sums for the environment `arithmetic`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from gymnast.builtin.responses_api_models.scripted_model.script import ScriptedCall, ScriptedReply, ScriptedToolCall
from tests.helpers.jsonl import write_jsonl

TOOL: Final = {
    "type": "function",
    "name": "search",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
POLICY: Final = "++policy_model.responses_api_models.scripted_model.script=tests.helpers.behaving_policy:answer"
CONFIGS: Final = "responses_api_models/scripted_model/configs/scripted_model.yaml"
NAMES: Final = ("-e", "arithmetic", "-c", CONFIGS, POLICY)
"""Arguments of commands that use it."""


def write_sums(path: Path, count: int, **params: Any) -> Path:
    """Rows of sums."""
    return write_jsonl(
        path,
        [
            {"responses_create_params": {"input": f"Work out {number} + 2.", **params}, "expected_answer": number + 2}
            for number in range(count)
        ],
    )


def behave(folder: Path, default: str = "right", **by_task: str) -> None:
    """Set the behaviour, for the first rollout of some tasks separately: `behave(folder, t3="cut")`."""
    named = {f"{name.removeprefix('t')}-0": how for name, how in by_task.items()}
    (folder / "behave.json").write_text(json.dumps({"default": default, **named}))


def answer(call: ScriptedCall) -> ScriptedReply:
    """The policy."""
    plan = json.loads(Path("behave.json").read_text())
    how = plan.get(re.sub(r"-a\d+$", "", call.rollout_id or ""), plan["default"])
    numbers = [int(number) for number in re.findall(r"\d+", call.user_text)]
    usage = {"input_tokens": 5, "output_tokens": 10}
    return {
        "right": ScriptedReply(text=f"Answer: {sum(numbers)}", usage=usage),
        "wrong": ScriptedReply(text="Answer: -1", usage=usage),
        "cut": ScriptedReply(text="Let me think", finish="length", usage=usage),
        "filtered": ScriptedReply(text="Let", finish="content_filter", usage=usage),
        "rejected": ScriptedReply(status=400, body={"error": {"message": "no"}}),
        "calling": ScriptedReply(tool_calls=(ScriptedToolCall(name="search"),), usage=usage),
    }[how]
