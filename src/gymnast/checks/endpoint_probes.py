"""Requests of `check endpoint` that are only sent if a run needs what they prove, and how their replies are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.checks.endpoint_evidence import (
    calls_of,
    find_call_problem,
    find_schema_problem,
    gist,
    has_reasoning,
    has_reasoning_in_text,
    make_image_url,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.types.json import JsonObject

TOOL: Final[JsonObject] = {
    "type": "function",
    "name": "look_up_city",
    "description": "Looks up a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": False,
}
"""The tool that probes offer."""
_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "letters": {"type": "integer"}},
    "required": ["city", "letters"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Probe:
    """A request, and how its reply is judged."""

    body: JsonObject
    find_problem: Callable[[JsonObject], str | None]
    """What the reply lacks, or None if it proves the claim."""
    describe: Callable[[JsonObject], str]
    means: str
    next: str
    limit: int = 64
    """Output tokens."""


def _ask(content: object) -> JsonObject:
    return {"input": [{"role": "user", "content": content}]}


def _find_parallel_problem(response: JsonObject) -> str | None:
    problem = find_call_problem(response, TOOL)
    if problem is not None:
        return problem
    count = _count_calls(response)
    return None if count >= 2 else f"{count} different calls in one turn"


def _count_calls(response: JsonObject) -> int:
    return len({str(call.get("arguments")) for call in calls_of(response)})


def _find_reasoning_problem(response: JsonObject) -> str | None:
    if has_reasoning_in_text(response):
        return "it arrives inside the answer"
    return None if has_reasoning(response) else "the reply has none"


def _find_image_problem(response: JsonObject) -> str | None:
    return None if "red" in text_of(response).lower() else "a red square was not recognised"


PROBES: Final = {
    "tools_parallel": Probe(
        {
            **_ask("Look up Oslo and Lima with the tool, both calls in one turn."),
            "tools": [TOOL],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
        },
        _find_parallel_problem,
        lambda response: f"{_count_calls(response)} calls in one turn",
        "several calls in one turn do not arrive: rows that need them take more turns, or fail",
        "use a parser and a model that support parallel calls",
        limit=128,
    ),
    "json_schema": Probe(
        {
            **_ask("Describe the city of Oslo: its name and the number of letters in it."),
            "text": {"format": {"type": "json_schema", "name": "city", "schema": _SCHEMA, "strict": True}},
        },
        lambda response: find_schema_problem(response, _SCHEMA),
        gist,
        "answers do not follow a JSON schema, even if a row asks for one",
        "use an inference server with constrained decoding (vLLM: structured outputs)",
    ),
    "reasoning": Probe(
        _ask("Which is larger, 9.11 or 9.9? Think first."),
        _find_reasoning_problem,
        lambda response: f"separate from the answer; it {gist(response)}",
        "reasoning is not separated from the answer: verifiers see it, or the model does not reason",
        "start the server with the model's reasoning parser (vLLM, SGLang: --reasoning-parser NAME)",
        limit=1024,
    ),
    "images": Probe(
        _ask(
            [
                {"type": "input_text", "text": "What colour is this square? Answer with one word."},
                {"type": "input_image", "image_url": make_image_url(), "detail": "auto"},
            ]
        ),
        _find_image_problem,
        gist,
        "rows with images fail, or the model does not see them",
        "use a multimodal model (llama.cpp: --mmproj)",
        limit=16,
    ),
}
"""By the name of the check."""
