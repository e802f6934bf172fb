"""Chat completions as server-sent events, as engines stream them."""

from __future__ import annotations

import json
from typing import Any


def sse(*chunks: Any, done: bool = True) -> str:
    """Chunks as events."""
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join(lines) + ("data: [DONE]\n\n" if done else "")


def delta(finish: str | None = None, index: int = 0, **message: Any) -> dict[str, Any]:
    """A chunk that adds to the message."""
    choice = {"index": index, "delta": message, "finish_reason": finish, "logprobs": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 9, "model": "m", "choices": [choice]}
