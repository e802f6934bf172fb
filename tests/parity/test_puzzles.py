"""The puzzles of reasoning_gym that the comparison starts from."""

from __future__ import annotations

import pytest

from tests.parity.seeds import make_puzzles


def test_there_are_puzzles_of_every_task() -> None:
    pytest.importorskip("reasoning_gym")
    tasks = {row["metadata"]["source_dataset"] for row in make_puzzles()}
    assert len(tasks) > 100
    assert {"game_of_life", "number_sorting", "word_ladder"} <= tasks
