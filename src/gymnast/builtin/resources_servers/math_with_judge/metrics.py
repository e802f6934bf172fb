"""pass@k and majority@k of the answers, as the library and as the judge see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymnast.kit import JsonObject, PassMajority, highest_k


def _scores(row: JsonObject) -> dict[str, Any]:
    library = {"symbolic_accuracy": row["library_reward"]} if "library_reward" in row else {}
    return {**library, "judge_accuracy": row["reward"]} if row.get("judge_evaluations") is not None else library


def _select(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: metrics[name] for name in ("mean/input_tokens", "mean/output_tokens") if name in metrics},
        **highest_k(metrics, "pass@1[avg-of-{k}]"),
        **highest_k(metrics, "pass@{k}", without=["no_answer"]),
        **highest_k(metrics, "majority@{k}", without=["no_answer"]),
    }


METRICS: Final = PassMajority(scores=_scores, answer_field="extracted_answer", select=_select)
