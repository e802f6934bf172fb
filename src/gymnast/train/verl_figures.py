"""Figures of a training step for verl's log, and what verl knows of each rollout besides its reward. Pure.

Facts of a rollout are plain values: in TransferQueue they are stored with it, so that a step's figures cover the
rollouts that it trains on, whenever they were collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gymnast.train.metrics import Metrics, facts_of
from gymnast.train.sequences import mean_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.train.samples import Batch, Sample
    from gymnast.types.json import JsonObject

PREFIX: Final = "gymnast/"
FACTS: Final = "gymnast_facts"
"""The extra field with the facts of a rollout, in its first entry in TransferQueue."""
_MAX_DIGITS: Final = 18
"""Of a step's number; longer ones are labels of another kind and do not fit a tensor."""
ERROR: Final = "gymnast_error"
"""The tag of a prompt whose rollouts failed."""


def batch_facts(batch: Batch, ended_at: float) -> list[JsonObject]:
    """The facts of each rollout of a batch that was delivered at `ended_at`, in seconds of any clock."""
    facts = [
        {**facts_of(sample), "oldest": step_range(sample)[0], "started_at": ended_at - batch.seconds}
        | {"ended_at": ended_at, "retries": 0}
        for sample in batch.samples
    ]
    if facts:
        facts[0]["retries"] = batch.logprob_retries
    return facts


def step_figures(facts: Sequence[Mapping[str, Any]], step: int | None = None) -> dict[str, float]:
    """The figures of the rollouts that a step trains on. `step`: its number, to tell how stale they are."""
    if not facts:
        return {}
    metrics = Metrics()
    for fact in facts:
        metrics.add_facts(fact)
    figures = metrics.figures()
    seconds = max(fact["ended_at"] for fact in facts) - min(fact["started_at"] for fact in facts)
    tokens = figures.get("gen_tokens_per_sample/mean", 0.0) * (figures["samples"] - sum(map(_is_failed, facts)))
    figures |= {
        "logprob_retries": sum(fact["retries"] for fact in facts),
        "seconds": seconds,
        "rollouts_per_second": len(facts) / seconds if seconds > 0 else 0.0,
        "gen_tokens_per_second": tokens / seconds if seconds > 0 else 0.0,
    }
    return {f"{PREFIX}{name}": float(value) for name, value in (figures | _staleness(facts, step)).items()}


def step_range(sample: Sample, unknown: int | None = None) -> tuple[int | None, int | None]:
    """The first and last step whose weights sampled a rollout; `unknown` if not reported."""
    parts = [part for version in sample.versions for part in version.split("-")]
    steps = [int(part) for part in parts if part.isdecimal() and len(part) <= _MAX_DIGITS]
    return (min(steps), max(steps)) if steps else (unknown, unknown)


def reward_extra_info(samples: Sequence[Sample], *, validate: bool) -> list[dict[str, float]]:
    """What the environment reports besides the reward, for each rollout of a group.

    In training every rollout has every number of its group: where one has none, or is masked, it gets the mean of the
    others, so that it does not decide whether verl's filter keeps the group. Validation measures: each has its own.
    """
    if validate:
        return [dict(sample.components) for sample in samples]
    own = [_numbers_of(sample) if sample.is_trainable else {} for sample in samples]
    names = dict.fromkeys(name for numbers in own for name in numbers)
    means = {name: mean_of([numbers[name] for numbers in own if name in numbers]) for name in names}
    return [means | numbers for numbers in own]


def _numbers_of(sample: Sample) -> dict[str, float]:
    score = {"score": sample.reward} if sample.reward is not None else {}
    return sample.numbers | sample.components | score


def _is_failed(fact: Mapping[str, Any]) -> bool:
    return bool(fact["failed"])


def _staleness(facts: Sequence[Mapping[str, Any]], step: int | None) -> dict[str, float]:
    """Weight updates between a rollout's oldest token and the weights that the step started with."""
    ages = [step - 1 - fact["oldest"] for fact in facts if step is not None and fact["oldest"] is not None]
    return {"staleness/mean": mean_of(ages), "staleness/max": max(ages)} if ages else {}
