"""pass@k and majority@k of programs, over all tasks and by difficulty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymnast.kit import JsonObject, PassMajority, highest_k


def _scores(row: JsonObject) -> dict[str, float]:
    return {"accuracy": float(row["reward"] > 0)}


def _select(metrics: Mapping[str, Any]) -> dict[str, Any]:
    subsets = {name.split("/pass@")[0] for name in metrics if "/pass@" in name and name[0].islower()}
    patterns = ["pass@1[avg-of-{k}]", "pass@{k}", "majority@{k}"]
    patterns += [f"{subset}/pass@1[avg-of-{{k}}]" for subset in sorted(subsets)]
    selected = {name: metrics[name] for name in ("mean/input_tokens", "mean/output_tokens") if name in metrics}
    for pattern in patterns:
        selected |= highest_k(metrics, pattern, ["accuracy"])
    return selected


METRICS: Final = PassMajority(
    scores=_scores,
    answer_field="extracted_model_code",
    subset_field="difficulty",
    sample_spread=True,
    select=_select,
)
