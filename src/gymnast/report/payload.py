"""The data of the page's script: a run's tasks and rollouts in columns.

All data is compressed JSON in base64, without any character that an HTML parser interprets.
"""

from __future__ import annotations

import base64
import json
import math
import shlex
import zlib
from typing import TYPE_CHECKING, Any, Final

from gymnast.report.records import read_tasks
from gymnast.report.safe_text import to_one_line
from gymnast.report.transcript_items import as_text, content_text

if TYPE_CHECKING:
    from gymnast.profile.table import Floats
    from gymnast.report.run_view import RunView
    from gymnast.types.json import JsonObject

_MAX_SNIPPET: Final = 110
_MAX_AGENT: Final = 120


def pack(value: Any) -> str:
    """Compress a JSON value to base64."""
    return pack_text(json.dumps(value, separators=(",", ":")))


def pack_text(text: str) -> str:
    """Compress JSON text to base64."""
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def make_columns(run: RunView) -> JsonObject:
    """The columns of a run's tasks and rollouts."""
    tasks, table = run.tasks, run.table
    failed: dict[str, dict[str, str]] = {}
    for key, kind in run.loaded.failures.last_kind.items():
        failed.setdefault(str(key >> 32), {})[str(key & 0xFFFFFFFF)] = kind
    excluded: dict[str, list[int]] = {}
    for key in run.excluded_offsets:
        excluded.setdefault(str(key >> 32), []).append(key & 0xFFFFFFFF)
    prompts, agents, names = [], [], dict[str, int]()
    for start in read_tasks(run):
        prompts.append(snippet(start.prompt))
        agents.append(names.setdefault(to_one_line(start.agent, _MAX_AGENT), len(names)))
    return {
        "name": run.name,
        "command": show_command(run),
        "binary": run.is_binary,
        "ids": tasks.ids.tolist(),
        "expected": tasks.expected.tolist(),
        "scored": tasks.scored.tolist(),
        "failed": tasks.failed.tolist(),
        "mean": _numbers(tasks.mean),
        "low": _numbers(tasks.low),
        "high": _numbers(tasks.high),
        "spread": _numbers(tasks.spread, digits=4),
        "tokens": _numbers(tasks.tokens, digits=0),
        "seconds": _numbers(tasks.seconds, digits=2) if tasks.has_seconds else None,
        "prompts": prompts,
        "agents": agents,
        "agentNames": list(names),
        "rollouts": table.rollouts.tolist(),
        "rewards": _numbers(table.rewards),
        "rolloutTokens": _numbers(run.tokens, digits=0),
        "failures": failed,
        "excluded": excluded,
    }


def show_command(run: RunView) -> str:
    """The command that prints a transcript of this run, without the rollout's name."""
    return f"gymnast report {shlex.quote(str(run.paths.output))} --show"


def snippet(prompt: Any) -> str:
    """The start of a prompt's last user message."""
    if isinstance(prompt, list):
        messages = [item for item in prompt if isinstance(item, dict) and item.get("role") == "user"]
        prompt = messages[-1].get("content") if messages else as_text(prompt[-1]) if prompt else None
    return to_one_line(content_text(prompt), _MAX_SNIPPET)


def _numbers(values: Floats, digits: int = 6) -> list[int | float | None]:
    """Numbers in as few characters as possible; None for unknown ones."""
    return [_shorten(value, digits) if math.isfinite(value) else None for value in values.tolist()]


def _shorten(value: float, digits: int) -> int | float:
    if value == int(value):
        return int(value)
    return round(value, digits) if digits else round(value)
