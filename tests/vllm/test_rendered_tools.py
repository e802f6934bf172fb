"""Prompts with tools: our ids are those of a real vLLM for the same chat request."""

from __future__ import annotations

from typing import Any

import pytest

from gymnast.tokens.load import load_renderer
from gymnast.tokens.messages import make_render_request
from gymnast.wire.dialects.chat_requests import params_to_chat
from gymnast.wire.http_client import HttpClient
from tests.vllm.asking import Asking
from tests.vllm.conftest import Model

pytestmark = pytest.mark.timeout(600)
PARAMETERS = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}, "required": ["b"]}
TOOLS: dict[str, dict[str, Any]] = {
    "as declared": {"name": "look_up", "description": "Looks up.", "parameters": PARAMETERS, "strict": True},
    "as OpenAI's classes write it": {"name": "f", "parameters": PARAMETERS, "strict": True, "description": "Looks up."},
    "without a description": {"name": "f", "parameters": PARAMETERS},
    "without parameters": {"description": "Stops.", "name": "stop", "strict": None},
}


@pytest.mark.parametrize("title", TOOLS)
async def test_prompts_with_tools_are_those_of_vllm(title: str, tiny: Model, http: HttpClient) -> None:
    params: Any = {"input": "find it", "tools": [{"type": "function", **TOOLS[title]}]}
    body, _ = params_to_chat(params)
    asked = {"model": tiny.name, "messages": body["messages"], "tools": body["tools"], "add_generation_prompt": True}
    theirs = (await Asking(tiny, http).post("/tokenize", asked))["tokens"]
    request = make_render_request(params, {}, developer="developer")
    ours = load_renderer(tiny.folder).prompt(request.messages, request.tools, request.args)
    assert list(ours.ids) == theirs
