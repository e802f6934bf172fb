"""Metrics of batches and streams for a trainer's log, named as in NeMo RL's logs where both have them."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gymnast.train.samples import Sample
    from gymnast.types.json import JsonObject

_COLUMNS: Final = (
    "turns_per_sample",
    "segments_per_sample",
    "total_tokens_per_sample",
    "gen_tokens_per_sample",
    "max_gen_tokens_per_turn",
    "total_reward",
    "versions_per_rollout",
)
_REWARD: Final = _COLUMNS.index("total_reward")


class Metrics:
    """Aggregates samples; keeps numbers, not samples."""

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = {name: array("d") for name in _COLUMNS}
        self._by_agent: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self._components: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self._terminations: Counter[str] = Counter()
        self._masked: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._drifted = self._samples = self._trained_tokens = self._trained_samples = 0

    def add(self, samples: Iterable[Sample]) -> None:
        """Count samples."""
        for sample in samples:
            self.add_facts(facts_of(sample))

    def figures(self) -> dict[str, float]:
        """The metrics so far."""
        figures: dict[str, float] = {"samples": self._samples}
        for name, values in self._columns.items():
            figures |= _distribution(name, values)
        scored = self._samples - self._failed.total()
        for kind in ("natural", "length", "turn_limit"):
            name = "natural_termination_rate" if kind == "natural" else f"termination/{kind}_rate"
            figures[name] = self._terminations[kind] / scored if scored else 0.0
        figures["truncation_rate"] = (
            (self._terminations["length"] + self._terminations["turn_limit"]) / scored if scored else 0.0
        )
        figures["drift_rate"] = self._drifted / scored if scored else 0.0
        figures["trained_samples"] = self._trained_samples
        figures["trained_tokens"] = self._trained_tokens
        figures["masked"] = self._masked.total()
        figures |= {f"masked/{reason}": count for reason, count in self._masked.items()}
        figures |= {f"failed/{kind}": count for kind, count in self._failed.items()}
        figures |= {f"reward/{name}/mean": _mean(values) for name, values in self._components.items()}
        return figures | {f"{name}/mean": _mean(values) for name, values in self._by_agent.items()}

    def add_facts(self, facts: Mapping[str, Any]) -> None:
        """Count a sample by what `facts_of` says of it."""
        self._samples += 1
        if facts["masked"]:
            self._masked[facts["masked"]] += 1
        if facts["failed"]:
            self._failed[facts["failed"]] += 1
            return
        self._terminations[facts["termination"]] += 1
        self._drifted += facts["drifted"]
        self._trained_samples += not facts["masked"]
        self._trained_tokens += facts["trained"]
        for name, value in zip(_COLUMNS, facts["columns"], strict=True):
            self._columns[name].append(value)
        for name, value in facts["components"].items():
            self._components[name].append(value)
        agent, reward = facts["agent"], facts["columns"][_REWARD]
        self._by_agent[f"{agent}/reward"].append(reward)
        for name, value in facts["numbers"].items():
            self._by_agent[f"{agent}/{name}"].append(value)


def facts_of(sample: Sample) -> JsonObject:
    """What metrics need of a sample, as plain values that another process can count."""
    turns = [end - start for segment in sample.segments for start, end in segment.turns]
    total = sum(len(segment.ids) - segment.shared for segment in sample.segments)
    row = (sample.turns, len(sample.segments), total, sum(turns), max(turns, default=0), sample.reward or 0.0)
    return {
        "agent": sample.agent,
        "columns": [*row, len(sample.versions)],
        "masked": sample.mask_reason.value if sample.mask_reason is not None else "",
        "failed": sample.failure.kind if sample.failure is not None else "",
        "termination": sample.termination.value,
        "drifted": sample.drifted_calls > 0,
        "trained": sample.trained,
        "components": sample.components,
        "numbers": sample.numbers,
    }


def batch_metrics(samples: Iterable[Sample]) -> dict[str, float]:
    """The metrics of these samples."""
    metrics = Metrics()
    metrics.add(samples)
    return metrics.figures()


def _mean(values: array[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _distribution(name: str, values: array[float]) -> dict[str, float]:
    if not values:
        return {}
    column = np.frombuffer(values, dtype=np.float64)
    return {
        f"{name}/mean": float(column.mean()),
        f"{name}/max": float(column.max()),
        f"{name}/min": float(column.min()),
        f"{name}/median": float(np.median(column)),
        f"{name}/stddev": float(column.std(ddof=1)) if len(column) > 1 else 0.0,
        f"{name}/p95": float(np.percentile(column, 95)),
        f"{name}/p99": float(np.percentile(column, 99)),
    }
