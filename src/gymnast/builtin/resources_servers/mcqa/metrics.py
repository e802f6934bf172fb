"""pass@k and majority@k of the letters that were chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymnast.kit import PassMajority, highest_k


def _select(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: metrics[name] for name in ("mean/reward",) if name in metrics},
        **highest_k(metrics, "pass@1[avg-of-{k}]", ["accuracy", "no_answer"]),
        **highest_k(metrics, "pass@{k}", ["no_answer"]),
        **highest_k(metrics, "majority@{k}", ["accuracy"]),
        **{name: metrics[name] for name in ("pass@1/accuracy",) if name in metrics},
    }


METRICS: Final = PassMajority(answer_field="extracted_answer", select=_select)
