"""The data of the page's script: a run's tasks and rollouts in columns, and selected transcripts, one block per task.

All of it is compressed JSON in base64, without any character that an HTML parser interprets.
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

from gymnast.report.records import read_lines, read_prompts
from gymnast.report.safe_text import to_one_line
from gymnast.report.selection import select_rollouts
from gymnast.report.transcript_items import (
    Limits,
    as_text,
    content_text,
    decode_record,
    extract_facts,
    prompt_items,
    reply_items,
    truncate,
)

if TYPE_CHECKING:
    from gymnast.profile.table import Floats
    from gymnast.report.run_view import RunView
    from gymnast.types.json import JsonObject

_MAX_SNIPPET: Final = 110
MAX_TRANSCRIPT_BYTES: Final = 8 << 20
"""The size limit of all transcripts in a page. For comparison, the columns of 320,000 rollouts take about 2 MB."""


def pack(value: Any) -> str:
    """Compress a JSON value to base64."""
    return base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)).decode()


def make_columns(run: RunView) -> JsonObject:
    """The columns of a run's tasks and rollouts."""
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
        "prompts": [snippet(prompt) for prompt in read_prompts(run)],
        "rollouts": table.rollouts.tolist(),
        "rewards": _numbers(table.rewards),
        "rolloutTokens": _numbers(run.tokens, digits=0),
        "failures": failed,
    }


def snippet(prompt: Any) -> str:
    """The start of a prompt's last user message."""
    if isinstance(prompt, list):
        messages = [item for item in prompt if isinstance(item, dict) and item.get("role") == "user"]
        prompt = messages[-1].get("content") if messages else as_text(prompt[-1]) if prompt else None
    return to_one_line(content_text(prompt), _MAX_SNIPPET)


@dataclass(slots=True)
class Transcripts:
    """Blocks of transcripts by task, up to a size limit."""

    free_bytes: int
    blocks: dict[str, str] = field(default_factory=dict)
    rollouts: dict[str, list[int]] = field(default_factory=dict)

    def add(self, task: int, block: JsonObject) -> None:
        """Add a task's block if it fits."""
        text = pack(block)
        if len(text) <= self.free_bytes:
            self.free_bytes -= len(text)
            self.blocks[str(task)] = text
            self.rollouts[str(task)] = sorted(map(int, block["rollouts"]))

    def __len__(self) -> int:
        return sum(map(len, self.rollouts.values()))


def collect_transcripts(run: RunView, limit: int, max_bytes: int, limits: Limits) -> Transcripts:
    """The transcripts of the most interesting rollouts, the most interesting tasks first."""
    keys = select_rollouts(run, limit)
    order = {task: index for index, task in enumerate(dict.fromkeys(key >> 32 for key in keys))}
    keys.sort(key=lambda key: order[key >> 32])
    transcripts = Transcripts(max_bytes)
    for task, lines in groupby(read_lines(run, keys), key=lambda pair: pair[0] >> 32):
        block: JsonObject = {"prompt": None, "rollouts": {}}
        for key, line in lines:
            _add_rollout(block, str(key & 0xFFFFFFFF), line, limits)
        transcripts.add(task, block)
    return transcripts


def _add_rollout(block: JsonObject, rollout: str, line: bytes, limits: Limits) -> None:
    """Add a rollout to its task's block. The prompt is stored once, unless a rollout has a different one."""
    record = decode_record(line)
    if record is None:
        block["rollouts"][rollout] = {"note": "this record cannot be decoded", "items": []}
        return
    prompt = prompt_items(record, limits)
    block["prompt"] = block["prompt"] or prompt
    transcript: JsonObject = {"items": reply_items(record, limits), "facts": extract_facts(record)}
    if prompt and prompt != block["prompt"]:
        transcript["prompt"] = prompt
    if isinstance(failure := record.get("failure"), dict):
        transcript["failure"] = {name: truncate(as_text(value), limits)["text"] for name, value in failure.items()}
    block["rollouts"][rollout] = transcript


def _numbers(values: Floats, digits: int = 6) -> list[int | float | None]:
    """Numbers in as few characters as possible; None for unknown ones."""
    return [_shorten(value, digits) if math.isfinite(value) else None for value in values.tolist()]


def _shorten(value: float, digits: int) -> int | float:
    if value == int(value):
        return int(value)
    return round(value, digits) if digits else round(value)
