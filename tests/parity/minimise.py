"""Makes a request that shows a difference smaller, as long as it shows the same one."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from tests.parity.compare import Comparison, Kind

Check = Callable[[dict[str, Any]], Awaitable[Comparison]]
_MAX_CHECKS = 40


async def minimise(request: dict[str, Any], signature: str, check: Check) -> dict[str, Any]:
    """The smallest request found with few checks."""
    checks, shrunk = 0, True
    while shrunk and checks < _MAX_CHECKS:
        shrunk = False
        for smaller in _shrink(request):
            checks += 1
            comparison = await check(smaller)
            if comparison.kind is Kind.DIFFERENT and comparison.signature == signature:
                request, shrunk = smaller, True
                break
            if checks >= _MAX_CHECKS:
                break
    return request


def _shrink(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Copies with a setting, an item or a piece of a text less."""
    for name in request.get("settings", {}):
        yield {**request, "settings": {key: value for key, value in request["settings"].items() if key != name}}
    for at, (_, body) in enumerate(request["steps"]):
        answer = body.get("response") if isinstance(body, dict) else None
        output = answer.get("output", []) if isinstance(answer, dict) else []
        for number, item in enumerate(output):
            if len(output) > 1:
                yield _replace(request, at, [*output[:number], *output[number + 1 :]])
            for smaller in _shrink_item(item):
                yield _replace(request, at, [*output[:number], smaller, *output[number + 1 :]])


def _shrink_item(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = item.get("content")
    if not isinstance(content, list):
        return
    for at, part in enumerate(content):
        if len(content) > 1:
            yield {**item, "content": [*content[:at], *content[at + 1 :]]}
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str) or len(text) < 2:
            continue
        for piece in _pieces(text):
            yield {**item, "content": [*content[:at], {**part, "text": piece}, *content[at + 1 :]]}


def _pieces(text: str) -> Iterator[str]:
    half, quarter = len(text) // 2, max(1, len(text) // 4)
    yield from (text[half:], text[:half], text[quarter:], text[:-quarter], text[quarter:-quarter])


def _replace(request: dict[str, Any], at: int, output: list[Any]) -> dict[str, Any]:
    copied = copy.deepcopy(request)
    copied["steps"][at][1]["response"]["output"] = output
    return copied
