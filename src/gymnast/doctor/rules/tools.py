"""Tool routing: tools that rows offer and no environment owns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.rules.rule import Rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts

_SHARE: Final = 0.05
_BAD_SHARE: Final = 0.2


def tool_unowned(facts: Facts) -> Finding | None:
    """Tools were offered to the model, it called them, and the environment answered Not Found."""
    records = facts.run.records if facts.run is not None else None
    if records is None or not records.unowned_tools:
        return None
    name, calls = records.unowned_tools.most_common(1)[0]
    if calls < max(1, _SHARE * records.scored):
        return None
    listed = ", ".join(f"{tool} ({number})" for tool, number in records.unowned_tools.most_common(5))
    return Finding(
        "tool_unowned",
        Layer.CONFIG,
        f"tools that rows offer are owned by nobody: {listed}",
        "the rows' tools and the environment's tools do not go together: another environment's rows, or a renamed tool",
        f"check who owns `{name}` before changing model settings: correct the rows' tools or the agent's "
        "resources_server, then collect again",
        (Evidence(f"rollouts whose calls were answered with Not Found: {listed}", facts.subject, count=calls),),
        Confidence.HIGH,
        affected=calls,
        weight=50,
    )


def tool_arguments(facts: Facts) -> Finding | None:
    """Arguments of many tool calls are no JSON."""
    records = facts.run.records if facts.run is not None else None
    if records is None or records.bad_arguments < max(2, _BAD_SHARE * records.scored):
        return None
    return Finding(
        "tool_arguments",
        Layer.MODEL_SERVING,
        f"in {records.bad_arguments} of {records.scored} rollouts the arguments of a tool call are no JSON",
        "the endpoint's tool-call parser is of another model family, answers are cut off inside a call, or the model "
        "cannot do better",
        "see that the endpoint parses calls as its model writes them (vLLM: --tool-call-parser); gymnast check "
        "endpoint URL --need tools_auto shows one",
        (
            Evidence(
                "tool calls answered with 'Invalid tool call arguments'", facts.subject, count=records.bad_arguments
            ),
        ),
        Confidence.MEDIUM,
        affected=records.bad_arguments,
        weight=49,
        explains=frozenset({"rewards_equal"}),
    )


RULES: Final = (
    Rule(
        *(
            "tool_arguments",
            Layer.MODEL_SERVING,
            4,
            "In a fifth or more of the rollouts a tool call's arguments are no JSON.",
        ),
        *("Correct the endpoint's tool-call parser.", tool_arguments),
    ),
    Rule(
        *("tool_unowned", Layer.CONFIG, 4, "Rows offer tools that the environment answers with Not Found."),
        *("Correct the rows' tools, or the agent's resources server.", tool_unowned),
    ),
)
