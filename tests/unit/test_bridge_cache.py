"""Bridges are rendered once for equal turns, and never mistaken for each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymnast.tokens.chat_template import ChatTemplate
from gymnast.tokens.load import load_renderer
from gymnast.tokens.template import TemplateRenderer
from tests.unit.test_rendering import sampled, write_tokenizer

CALLS = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>' + call.function.name + WRITTEN_CALL + (call.function.arguments | tojson) + '</tool_call>' }}
    {%- endfor %}
    {%- if message.role == 'tool' %}{{- WRITTEN_RESULT }}{%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
TEMPLATES = {
    "ids are not written": CALLS.replace("WRITTEN_CALL", "' '").replace("WRITTEN_RESULT", "''"),
    "ids are written": CALLS.replace("WRITTEN_CALL", "' '").replace("WRITTEN_RESULT", "message.tool_call_id"),
    "results name their call": CALLS.replace("WRITTEN_CALL", "' '").replace(
        "WRITTEN_RESULT", "'first' if message.tool_call_id == messages[1].tool_calls[0].id else 'other'"
    ),
}
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture(scope="module", params=sorted(TEMPLATES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("model"), chat_template=TEMPLATES[request.param])


@st.composite
def turns(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A history that ends with calls, and their results in any order."""
    ids = draw(st.lists(st.sampled_from(["call_a", "call_b", "call_long"]), min_size=1, max_size=2, unique=True))
    names = [draw(st.sampled_from(["find", "look"])) for _ in ids]
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for call_id, name in zip(ids, names, strict=True)
    ]
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": calls},
    ]
    results: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": call_id, "content": draw(st.sampled_from(["none", "1", "call_a"]))}
        for call_id in draw(st.permutations(ids))
    ]
    return history, results


def bridge(renderer: TemplateRenderer, turn: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> Any:
    history, results = turn
    names = [call["function"]["name"] for call in history[-1]["tool_calls"]]
    text = "".join(f"<tool_call>{json.dumps({'name': name, 'arguments': {}})}</tool_call>" for name in names)
    return renderer.bridge(history, sampled(renderer, text + "<|im_end|>"), results, TOOLS, {})


def test_a_bridge_does_not_depend_on_those_before_it(folder: Path) -> None:
    used = load_renderer(folder)

    @settings(max_examples=40, deadline=None)
    @given(turns())
    def check(turn: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
        assert bridge(used, turn) == bridge(load_renderer(folder), turn)

    check()


def test_equal_turns_are_rendered_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = load_renderer(folder)
    call = {"id": "call_a", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    results: list[dict[str, Any]] = [{"role": "tool", "tool_call_id": "call_a", "content": "none"}]
    turn = (history, results)
    first = bridge(renderer, turn)
    monkeypatch.delattr(ChatTemplate, "render")
    assert bridge(renderer, turn) == first
