"""The items of a rubric, and how their scores become one reward. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, FiniteFloat

from gymnast.builtin.float_sums import sum_floats

AggregationMode = Literal["mean", "min", "max", "all", "any", "weighted"]
Answer = Literal["YES", "NO"]
_PASSED = 0.99


class RubricItem(BaseModel):
    """A question about the model's reply, and the answer with which it passes."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    question: str = ""
    pass_criteria: str = "YES"
    weight: FiniteFloat = 1.0


class RubricEvaluation(BaseModel):
    """The judge's answer to one item, as stored in records."""

    model_config = ConfigDict(frozen=True)
    question: str
    pass_criteria: str
    judge_prompt: str
    judge_response: str
    verdict: Answer
    score: float
    weight: float

    @property
    def passed(self) -> bool:
        return self.score >= _PASSED


def aggregate(evaluations: Sequence[RubricEvaluation], mode: AggregationMode) -> float:
    """The reward; 0 for an empty rubric."""
    if not evaluations:
        return 0.0
    scores = [evaluation.score for evaluation in evaluations]
    match mode:
        case "mean":
            return sum(scores) / len(scores)
        case "min" | "all":
            return min(scores)
        case "max" | "any":
            return max(scores)
        case "weighted":
            total = sum_floats(evaluation.weight for evaluation in evaluations)
            passed = sum_floats(evaluation.score * evaluation.weight for evaluation in evaluations)
            return passed / total if total else 0.0
