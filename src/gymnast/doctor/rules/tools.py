"""Tool routing: tools that rows offer and no environment owns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.doctor.findings import Confidence, Evidence, Finding
from gymnast.doctor.rules.rule import Rule
from gymnast.types.failure import Layer

if TYPE_CHECKING:
    from gymnast.doctor.facts import Facts

_SHARE: Final = 0.05


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


RULES: Final = (
    Rule(
        *("tool_unowned", Layer.CONFIG, 4, "Rows offer tools that the environment answers with Not Found."),
        *("Correct the rows' tools, or the agent's resources server.", tool_unowned),
    ),
)
