"""Hundreds of schedules against the real store code (`store_schedules`), more with GYMNAST_STORE_SCHEDULES."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.store_schedules import simulate

SCHEDULES = int(os.environ.get("GYMNAST_STORE_SCHEDULES", "400"))
_BATCH = 50


@pytest.mark.parametrize("first", range(0, SCHEDULES, _BATCH))
def test_the_promise_holds_whatever_happens(first: int, tmp_path: Path) -> None:
    for seed in range(first, min(first + _BATCH, SCHEDULES)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        simulate(seed, folder)
