"""Tools reach chat templates with the keys of vLLM's own rendering, in its order: prompts are the same ids."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from gymnast.tokens.messages import make_render_request

PARAMETERS = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}, "required": ["b"]}
TOOL = {"type": "function", "name": "look_up", "description": "Looks up.", "parameters": PARAMETERS, "strict": True}
"""As vLLM 0.32 writes tools of a chat request: these keys, null where there is no value, and no other key."""
WRITTEN = json.dumps({
    "type": "function",
    "function": {"name": "look_up", "description": "Looks up.", "parameters": PARAMETERS},
})  # fmt: skip


def tools_of(*tools: dict[str, Any]) -> list[dict[str, Any]]:
    return make_render_request({"input": "q", "tools": list(tools)}, {}, developer="developer").tools


@pytest.mark.parametrize("order", list(permutations(TOOL))[::7])
def test_the_order_of_a_rows_keys_does_not_matter(order: tuple[str, ...]) -> None:
    [tool] = tools_of({key: TOOL[key] for key in order})
    assert json.dumps(tool) == WRITTEN, "the order within parameters is the row's"


@pytest.mark.parametrize("missing", [{}, {"description": None, "parameters": None}])
def test_what_a_tool_does_not_have_is_null(missing: dict[str, Any]) -> None:
    [tool] = tools_of({"type": "function", "name": "stop", "strict": None, **missing})
    assert json.dumps(tool["function"]) == '{"name": "stop", "description": null, "parameters": null}'


def test_other_keys_do_not_reach_the_template() -> None:
    [tool] = tools_of({**TOOL, "defer": True})
    assert json.dumps(tool) == WRITTEN
