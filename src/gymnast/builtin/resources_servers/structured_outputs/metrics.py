"""Mean rewards by format, kind of problem, and the way in which a row asks."""

from __future__ import annotations

from typing import Any, Final

from gymnast.kit import GroupField, MeanRewards

_TEXTS: Final = (
    *("instruction_layout", "instruction_detail_level", "system_instruction_style", "tool_name_style"),
    *("distractor_style", "tool_union_mode"),
)


def _flag(value: Any) -> str | None:
    return None if value is None else str(bool(value)).lower()


def _count(value: Any) -> str | None:
    return None if value is None else str(value)


METRICS: Final = MeanRewards(
    (
        GroupField("schema_type", label=str, missing="unknown"),
        GroupField("problem_type"),
        GroupField("schema_repr", "repr_"),
        *(GroupField(name, f"{name}_") for name in ("response_mode", "tool_schema_mode", "tool_choice")),
        GroupField("parallel_tool_calls", "parallel_tool_calls_", _flag),
        GroupField("num_tools", "num_tools_", _count),
        GroupField("has_distractors", "has_distractors_", _flag),
        *(GroupField(name, f"{name}_") for name in _TEXTS),
    )
)
