"""Compares the rows that reached verl's loss with what the replica says it sampled."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from gymnast.train import advantages
from tests.helpers.jsonl import read_jsonl
from tests.train.verl_loop.running import GENERATIONS, STEPS, TASKS_PER_STEP, Loop, TrainedRow

ROWS = TASKS_PER_STEP * GENERATIONS


def require_rows_as_sampled(loop: Loop, name: str) -> None:
    """Every row that reached the loss is what the replica sampled, token for token, with its group's advantage."""
    steps = loop.trained(name)
    assert len(steps) == STEPS
    calls = defaultdict(list)
    for call in loop.sampled():
        calls[tuple(call["prompt"])].append(call)
    for step, rows in enumerate(steps, start=1):
        assert len(rows) == ROWS
        for row in rows:
            require_row(row, calls)
        scores = scores_of(loop, step)
        for group in groups_of(rows):
            expected = advantages([scores[row.texts] for row in group])
            assert [row.advantage for row in group] == pytest.approx([value or 0.0 for value in expected], abs=1e-3)


def require_row(row: TrainedRow, calls: dict[tuple[int, ...], list[Any]]) -> None:
    assert row.spans, "every row of these tasks has a sampled token"
    for start, end in row.spans:
        before = (*row.prompt, *row.response[:start])
        sampled = list(zip(row.response[start:end], row.logprobs[start:end], strict=True))
        assert was_sampled(before, sampled, calls), "tokens with mask 1 are a call's, after exactly those before"
    masked = [place for place, trained in enumerate(row.mask) if not trained]
    assert not any(row.logprobs[place] or row.advantages[place] for place in masked)
    assert row.old_logprobs == pytest.approx(row.logprobs, abs=1e-6), "bypass: old logprobs are those of sampling"


def was_sampled(
    prompt: tuple[int, ...], sampled: list[tuple[int, float]], calls: dict[tuple[int, ...], list[Any]]
) -> bool:
    """Whether one call sampled these tokens with these logprobs, or several where an update aborted the first."""
    if not sampled:
        return True
    for call in calls.get(prompt, ()):
        size, found = len(call["ids"]), list(zip(call["ids"], call["logprobs"], strict=True))
        is_same = size > 0 and found == [(token, pytest.approx(value, abs=1e-6)) for token, value in sampled[:size]]
        if is_same and was_sampled((*prompt, *call["ids"]), sampled[size:], calls):
            return True
    return False


def scores_of(loop: Loop, step: int) -> dict[tuple[str, str], float]:
    """The rewards that verl wrote down, by prompt and response."""
    return {(row["input"], row["output"]): row["score"] for row in read_jsonl(loop.folder / "rows" / f"{step}.jsonl")}


def groups_of(rows: list[TrainedRow]) -> list[list[TrainedRow]]:
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(row.prompt)].append(row)
    assert {len(group) for group in groups.values()} == {GENERATIONS}
    return list(groups.values())
