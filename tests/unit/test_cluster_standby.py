"""A few workers without work stay for what others leave; the rest ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.cluster.standby import Standby
from gymnast.store.chunk_files import Holder
from gymnast.store.chunk_layout import ChunkLayout

LEASE_S = 60.0
PLACES = 2


@pytest.fixture
def idle(tmp_path: Path) -> list[Standby]:
    return [
        Standby(ChunkLayout(tmp_path), "run", 10, Holder(worker=f"w{number}", host="n"), LEASE_S)
        for number in range(PLACES + 2)
    ]


def test_few_stay(idle: list[Standby]) -> None:
    assert not any(one.stays(0.0, takes=False) for one in idle), "nobody asked for a place"
    for now in (1.0, 30.0, 61.0, 122.0):
        assert [one.stays(now, takes=True) for one in idle] == [True] * PLACES + [False, False]


def test_a_place_that_is_left_is_another_s(idle: list[Standby]) -> None:
    first, *_, last = idle
    for one in idle:
        one.stays(0.0, takes=True)
    assert not last.stays(1.0, takes=True)
    first.leave()
    assert last.stays(2.0, takes=True)
    assert not first.stays(3.0, takes=True)


def test_the_place_of_a_dead_one_is_another_s_after_a_lease(idle: list[Standby]) -> None:
    _, *alive = idle
    for one in idle:
        one.stays(0.0, takes=True)
    for now in (20.0, 40.0, 59.0):
        assert [one.stays(now, takes=True) for one in alive] == [True] * (PLACES - 1) + [False, False]
    assert [one.stays(60.0, takes=True) for one in alive] == [True] * PLACES + [False]


def test_who_lost_its_place_goes(idle: list[Standby]) -> None:
    slow, *others = idle
    slow.stays(0.0, takes=True)
    for now in (0.0, 61.0):
        for one in others:
            one.stays(now, takes=True)
    assert not slow.stays(62.0, takes=True)


def test_of_a_large_run_more_stay(tmp_path: Path) -> None:
    layout = ChunkLayout(tmp_path)
    idle = [Standby(layout, "run", 1667, Holder(worker=f"w{number}", host="n"), LEASE_S) for number in range(30)]
    stays = [one.stays(0.0, takes=True) for one in idle]
    assert sum(stays) == 16
    for gone in (None, idle[0], idle[1], idle[15], idle[7]):
        if gone is not None:
            gone.leave()
        shares = [one.share() for one in idle]
        for number in range(100):
            assert sum(is_mine(number) for is_mine in shares) == 1, "everything falls to somebody, once"
