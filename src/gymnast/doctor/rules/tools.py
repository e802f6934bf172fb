"""Rules about tools: those that no environment has, and calls with invalid arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.rules.rewards import UNEXPLAINED
from gymnast.doctor.rules.rule import rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts

_SHARE: Final = 0.05
_BAD_SHARE: Final = 0.2


@rule(Layer.CONFIG, 4, "Correct the rows' tools, or the agent's resources server.")
def tool_unowned(facts: Facts) -> Finding | None:
    """Rows have tools for which the environment returns Not Found."""
    records = facts.run.records if facts.run is not None else None
    if records is None or not records.unowned_tools:
        return None
    name, calls = records.unowned_tools.most_common(1)[0]
    if calls < max(1, _SHARE * records.scored):
        return None
    names = ", ".join(f"{tool} ({number})" for tool, number in records.unowned_tools.most_common(5))
    return Finding(
        "tool_unowned",
        Layer.CONFIG,
        f"rows have tools that no environment has: {names}",
        "the rows' tools do not match the environment's: rows of another environment, or a renamed tool",
        f"check which environment has `{name}` before changing model settings: correct the rows' tools or the agent's "
        "resources_server, then collect again",
        (Evidence(f"rollouts whose calls returned Not Found: {names}", facts.target, count=calls),),
        Confidence.HIGH,
        affected=calls,
        weight=50,
        explains=UNEXPLAINED | {"tools_fail"},
    )


@rule(Layer.MODEL_SERVING, 4, "Correct the endpoint's tool-call parser.")
def tool_arguments(facts: Facts) -> Finding | None:
    """In at least a fifth of the rollouts, the arguments of a tool call are not JSON."""
    records = facts.run.records if facts.run is not None else None
    if records is None or records.bad_arguments < max(2, _BAD_SHARE * records.scored):
        return None
    return Finding(
        "tool_arguments",
        Layer.MODEL_SERVING,
        f"in {records.bad_arguments} of {records.scored} rollouts the arguments of a tool call are not JSON",
        "the tool-call parser of the endpoint is for another model family, responses are truncated, or the model "
        "cannot write valid JSON",
        "make the endpoint parse calls as its model writes them (vLLM: --tool-call-parser); gymnast check "
        "endpoint URL --require tools_auto shows one",
        (
            Evidence(
                "tool calls that returned 'Invalid tool call arguments'", facts.target, count=records.bad_arguments
            ),
        ),
        Confidence.MEDIUM,
        affected=records.bad_arguments,
        weight=49,
        explains=UNEXPLAINED | {"tools_fail"},
    )


RULES: Final = (tool_arguments, tool_unowned)
