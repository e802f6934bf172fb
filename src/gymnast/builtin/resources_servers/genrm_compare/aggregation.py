"""Rewards of responses that were compared with each other: mean scores, then bonuses for short and plain ones. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Literal

import numpy as np

from gymnast.builtin.float_sums import sum_floats

from .scores import Scores
from .texts import answer_of, reasoning_of

ComparisonStrategy = Literal["circular", "all_pairs"]
_MIDDLE: Final = 3.5
"""The ranking of two equal responses."""
_CODE: Final = re.compile(r"```[\s\S]*?```")
_STYLE: Final = (
    re.compile(r"^#{1,6}\s", re.MULTILINE),
    re.compile(r"^[^\S\n]*\d+\.\s", re.MULTILINE),
    re.compile(r"^[^\S\n]*[-*+]\s", re.MULTILINE),
    re.compile(r"\*\*[^*\n]+\*\*"),
    re.compile(r"__[^_\n]+__"),
)
_EMOJI: Final = re.compile("[\u2600-\u27bf\U0001f1e0-\U0001f1ff\U0001f300-\U0001f64f\U0001f680-\U0001f6ff"
                           "\U0001f900-\U0001f9ff\U0001fa00-\U0001faff]")  # fmt: skip
_WIDE_EMOJI: Final = re.compile(f"[\u24c2-\U0001f251]|{_EMOJI.pattern}")
"""What NeMo Gym takes for emoji: also Chinese, Japanese and Korean text, and much else."""


@dataclass(frozen=True, slots=True)
class Bonuses:
    """Settings that add to the rewards of short or plain responses."""

    reasoning_bonus: float = 0.0
    answer_bonus: float = 0.0
    top_percentile: float = 0.2
    group_reasoning_length_penalty_coeff: float = 0.0
    group_answer_length_penalty_coeff: float = 0.0
    group_style_penalty_coeff: float = 0.0
    counts_wide_emoji: bool = True

    @property
    def depend_on_length(self) -> bool:
        names = ("reasoning_bonus", "answer_bonus", "group_reasoning_length_penalty_coeff")
        return any(getattr(self, name) > 0 for name in (*names, "group_answer_length_penalty_coeff"))


def make_pairs(strategy: ComparisonStrategy, size: int) -> list[tuple[int, int]]:
    """Which of `size` responses are compared: each with the next, in a circle, or every two."""
    if strategy == "all_pairs":
        return list(combinations(range(size), 2))
    return [(at, (at + 1) % size) for at in range(size)] if size > 1 else []


def aggregate(
    comparisons: Mapping[tuple[int, int, int], Scores], responses: Sequence[Any], default: float, bonuses: Bonuses
) -> list[float]:
    """The reward of each response. Comparisons are by the two responses and the number of the vote, in order."""
    sums, counts = [0.0] * len(responses), [0] * len(responses)
    for (first, second, _), (score_1, score_2, ranking) in comparisons.items():
        lead = _MIDDLE - ranking if score_1 == score_2 else 0.0
        sums[first] += score_1 + lead
        sums[second] += score_2 - lead
        counts[first] += 1
        counts[second] += 1
    rewards = [total / count if count else default for total, count in zip(sums, counts, strict=True)]
    if bonuses.depend_on_length and len(responses) > 1:
        _add_length_bonuses(rewards, responses, bonuses)
    if bonuses.group_style_penalty_coeff > 0 and len(responses) > 1:
        densities = [_style_density(answer_of(response), wide=bonuses.counts_wide_emoji) for response in responses]
        _add(rewards, _weights(densities), bonuses.group_style_penalty_coeff)
    return rewards


def metrics_of(comparisons: Mapping[tuple[int, int, int], Scores]) -> dict[str, float]:
    """Statistics of a batch of comparisons."""
    scores = np.array(
        [score for comparison in comparisons.values() for score in (comparison.score_1, comparison.score_2)]
    )
    ties = sum(comparison.score_1 == comparison.score_2 for comparison in comparisons.values())
    return {
        "mean_individual_score": float(np.mean(scores)),
        "std_individual_score": float(np.std(scores)),
        "tiebreak_usage_rate": ties / len(comparisons),
    }


def _add_length_bonuses(rewards: list[float], responses: Sequence[Any], bonuses: Bonuses) -> None:
    reasoning = [len(reasoning_of(response).strip()) for response in responses]
    answers = [len(answer_of(response).strip()) for response in responses]
    best = sorted(rewards, reverse=True)[max(0, int(len(rewards) * bonuses.top_percentile) - 1)]
    for lengths, bonus in ((reasoning, bonuses.reasoning_bonus), (answers, bonuses.answer_bonus)):
        shortest = min((at for at, length in enumerate(lengths) if length), key=lambda at: lengths[at], default=None)
        if bonus > 0 and shortest is not None and rewards[shortest] >= best:
            rewards[shortest] += bonus
    per_reasoning, per_answer = bonuses.group_reasoning_length_penalty_coeff, bonuses.group_answer_length_penalty_coeff
    if per_reasoning > 0 or per_answer > 0:
        for at, (of_reasoning, of_answer) in enumerate(zip(_weights(reasoning), _weights(answers), strict=True)):
            rewards[at] += of_reasoning * per_reasoning + of_answer * per_answer


def _add(rewards: list[float], weights: Sequence[float], factor: float) -> None:
    for at, weight in enumerate(weights):
        rewards[at] += weight * factor


def _weights(sizes: Sequence[float]) -> list[float]:
    """From positive for the smallest to negative for the largest; their sum is 0."""
    low, high = min(sizes), max(sizes)
    if low == high:
        return [0.0] * len(sizes)
    shares = [1.0 - ((size - low) / (high - low)) for size in sizes]
    mean = sum_floats(shares) / len(shares)
    return [share - mean for share in shares]


def _style_density(text: str, *, wide: bool) -> float:
    """Headings, list entries, bold texts and emoji per character, outside of code."""
    text = _CODE.sub("", text)
    # a second time: what is left may contain a block that the first one took apart
    counted, size = _CODE.sub("", text), len(text.strip())
    if size <= 0:
        return 0.0
    patterns = (*_STYLE, _WIDE_EMOJI if wide else _EMOJI)
    return sum(len(pattern.findall(counted)) for pattern in patterns) / size
