"""Hundreds of schedules against the real store code, more with GYMNAST_STORE_SCHEDULES; a failure names its seed.

`store_schedules`: other programs and two writers. `disk_schedules`: a disk that forgets. `lease_schedules`: workers
that share a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash import disk_schedules, lease_schedules, store_schedules

SCHEDULES = int(os.environ.get("GYMNAST_STORE_SCHEDULES", "400"))
_BATCH = 50


def _simulate(simulate: Callable[[int, Path], list[str]], first: int, last: int, folder: Path) -> None:
    for seed in range(first, last):
        place = folder / str(seed)
        place.mkdir()
        simulate(seed, place)


@pytest.mark.parametrize("first", range(0, SCHEDULES, _BATCH))
def test_the_promise_holds_whatever_other_programs_do(first: int, tmp_path: Path) -> None:
    _simulate(store_schedules.simulate, first, min(first + _BATCH, SCHEDULES), tmp_path)


@pytest.mark.parametrize("first", range(0, SCHEDULES // 2, _BATCH))
def test_the_promise_holds_on_a_disk_that_forgets(first: int, tmp_path: Path) -> None:
    _simulate(disk_schedules.simulate, first, min(first + _BATCH, SCHEDULES // 2), tmp_path)


@pytest.mark.parametrize("first", range(0, SCHEDULES // 4, _BATCH))
def test_the_promise_holds_for_workers_that_share_a_run(first: int, tmp_path: Path) -> None:
    _simulate(lease_schedules.simulate, first, min(first + _BATCH, SCHEDULES // 4), tmp_path)
