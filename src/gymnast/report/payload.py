"""What the page's script reads: a run's tasks and rollouts in columns, and the chosen transcripts, one block a task.

Everything is JSON, compressed, in base64: there is no sign in it that means anything to an HTML parser.
"""

from __future__ import annotations

import base64
import json
import math
import shlex
import zlib
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from gymnast.report.records import chosen_lines, prompts
from gymnast.report.selection import selected
from gymnast.report.transcripts import (
    Limits,
    as_text,
    content_text,
    cut_text,
    decoded,
    facts,
    prompt_items,
    reply_items,
)
from gymnast.report.visible import one_line

if TYPE_CHECKING:
    from gymnast.profile.table import Floats
    from gymnast.report.run_view import RunView
    from gymnast.types.json import JsonObject

_SNIPPET: Final = 110
BUDGET_BYTES: Final = 8 << 20
"""What the transcripts of all runs may weigh in the page. The columns of 320,000 rollouts weigh about 2 MB."""


def packed(value: Any) -> str:
    """Any JSON value as text without a meaning of its own."""
    return base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)).decode()


def columns(run: RunView) -> JsonObject:
    """A run's tasks and rollouts."""
    tasks, table = run.tasks, run.table
    failed: dict[str, dict[str, str]] = {}
    for key, kind in run.loaded.failures.last_kind.items():
        failed.setdefault(str(key >> 32), {})[str(key & 0xFFFFFFFF)] = kind
    return {
        "name": run.name,
        "command": f"gymnast report {shlex.quote(str(run.paths.output))} --show",
        "binary": run.is_binary,
        "ids": tasks.ids.tolist(),
        "expected": tasks.expected.tolist(),
        "scored": tasks.scored.tolist(),
        "failed": tasks.failed.tolist(),
        "mean": _numbers(tasks.mean),
        "low": _numbers(tasks.low),
        "high": _numbers(tasks.high),
        "tokens": _numbers(tasks.tokens, digits=0),
        "prompts": [snippet(given) for given in prompts(run)],
        "rollouts": table.rollouts.tolist(),
        "rewards": _numbers(table.rewards),
        "rolloutTokens": _numbers(run.tokens, digits=0),
        "failures": failed,
    }


def snippet(given: Any) -> str:
    """The beginning of what a task asks: its last user message."""
    if isinstance(given, list):
        messages = [one for one in given if isinstance(one, dict) and one.get("role") == "user"]
        given = messages[-1].get("content") if messages else as_text(given[-1]) if given else None
    return one_line(content_text(given), _SNIPPET)


@dataclass(slots=True)
class Transcripts:
    """Blocks of transcripts, by task, as long as there is room."""

    room_bytes: int
    blocks: dict[str, str] = field(default_factory=dict)
    rollouts: dict[str, list[int]] = field(default_factory=dict)

    def add(self, task: int, block: JsonObject) -> None:
        """Take a task's block, unless there is no room for it."""
        text = packed(block)
        if len(text) <= self.room_bytes:
            self.room_bytes -= len(text)
            self.blocks[str(task)] = text
            self.rollouts[str(task)] = sorted(int(one) for one in block["rollouts"])

    def __len__(self) -> int:
        return sum(map(len, self.rollouts.values()))


def transcripts(run: RunView, limit: int, room_bytes: int, limits: Limits) -> Transcripts:
    """The transcripts of the most interesting rollouts, the most interesting tasks first."""
    keys = selected(run, limit)
    order = {task: place for place, task in enumerate(dict.fromkeys(key >> 32 for key in keys))}
    keys.sort(key=lambda key: order[key >> 32])
    found = Transcripts(room_bytes)
    for task, lines in groupby(chosen_lines(run, keys), key=lambda pair: pair[0] >> 32):
        block: JsonObject = {"prompt": None, "rollouts": {}}
        for key, line in lines:
            _put(block, str(key & 0xFFFFFFFF), line, limits)
        found.add(task, block)
    return found


def _put(block: JsonObject, rollout: str, line: bytes, limits: Limits) -> None:
    """One rollout into its task's block. The prompt is kept once, unless a rollout had another."""
    record = decoded(line)
    if record is None:
        block["rollouts"][rollout] = {"note": "this record cannot be decoded", "items": []}
        return
    prompt = prompt_items(record, limits)
    block["prompt"] = block["prompt"] or prompt
    found: JsonObject = {"items": reply_items(record, limits), "facts": facts(record)}
    if prompt and prompt != block["prompt"]:
        found["prompt"] = prompt
    if isinstance(record.get("failure"), dict):
        found["failure"] = {name: cut_text(as_text(value), limits)["text"] for name, value in record["failure"].items()}
    block["rollouts"][rollout] = found


def _numbers(values: Floats, digits: int = 6) -> list[int | float | None]:
    """Numbers as short as they can be said; null for what is not known."""
    found: list[int | float | None] = []
    for value in values.tolist():
        if not math.isfinite(value):
            found.append(None)
        else:
            found.append(int(value) if value == int(value) else round(value, digits) if digits else round(value))
    return found
