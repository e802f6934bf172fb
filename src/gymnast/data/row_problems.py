"""Problems of well-formed rows: agents that are not configured, uncallable tools, empty prompts or answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gymnast.data.tool_schema import tool_problems
from gymnast.errors import suggest
from gymnast.types.task import AGENT_REF, agent_name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gymnast.data.row import Row
    from gymnast.types.json import JsonObject

_ANSWERS: Final = ("expected_answer", "expected_result")
_TEXTS: Final = ("question", "answer")
"""May be null if the verifier does not need them, but not blank."""


class RowProblem(NamedTuple):
    """One problem of a row."""

    kind: str
    what: str


def row_problems(row: Row, agents: Collection[str] | None) -> Iterator[RowProblem]:
    """The problems of a well-formed row. `agents`: the configured ones, or None if unknown."""
    for what in _agent_problems(row.data, agents):
        yield RowProblem("agent", what)
    for what in tool_problems(row.params.get("tools") or []):
        yield RowProblem("tool", what)
    if not _has_prompt(row.params):
        yield RowProblem("empty", "the prompt is empty")
    for key in (*_ANSWERS, *_TEXTS):
        if key in row.data and _is_blank(row.data[key], or_null=key in _ANSWERS):
            yield RowProblem("empty", f"'{key}' is empty")


def _agent_problems(data: JsonObject, agents: Collection[str] | None) -> Iterator[str]:
    if AGENT_REF not in data:
        return
    name = agent_name_of(data)
    if name is None:
        yield f"'{AGENT_REF}' must be an object with a name"
    elif agents is not None and name not in agents:
        hint = suggest(name, agents)
        yield f"the agent '{name}' is not configured" + (f"; {hint}" if hint else "")


def _has_prompt(params: JsonObject) -> bool:
    """True if there is anything to respond to: text, an image, a tool output, or a prompt by reference."""
    if params.get("prompt"):
        return True
    prompt = params["input"]
    if isinstance(prompt, str):
        return bool(prompt.strip())
    return any(_item_has_content(item) for item in prompt)


def _item_has_content(item: JsonObject) -> bool:
    """Only messages can be empty. System and developer messages alone do not count as a prompt."""
    if item.get("type", "message") != "message":
        return True
    if item.get("role") in {"system", "developer"}:
        return False
    content = item["content"]
    if isinstance(content, str):
        return bool(content.strip())
    return any(part.get("type") not in {"input_text", "output_text"} or part["text"].strip() for part in content)


def _is_blank(value: Any, *, or_null: bool) -> bool:
    return (isinstance(value, str) and not value.strip()) or (value is None and or_null)
