"""Garbage collection while a run is busy, and as it was afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gymnast.runtime.garbage import rare_garbage_collection


@pytest.fixture
def thawed_heap() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.freeze()


def test_the_heap_is_frozen_during_a_run_only(thawed_heap: None) -> None:
    before = gc.get_threshold()
    with rare_garbage_collection():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() > before
    assert (gc.get_freeze_count(), gc.get_threshold()) == (0, before)


def test_a_heap_that_the_process_has_frozen_stays_frozen() -> None:
    """What is frozen may still die, so the count may shrink; only a second freeze would add what is new since."""
    frozen, before = gc.get_freeze_count(), gc.get_threshold()
    new = [[one] for one in range(1000)]
    with rare_garbage_collection():
        assert frozen >= gc.get_freeze_count() > frozen - len(new)
    assert frozen >= gc.get_freeze_count() > frozen - len(new)
    assert gc.get_threshold() == before
