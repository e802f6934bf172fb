"""A few workers without work stay for what others leave; the rest ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.chunks.standby import Standby
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
    assert not any(one.stand_by(0.0, may_claim=False) for one in idle), "nobody asked for a place"
    for now in (1.0, 30.0, 61.0, 122.0):
        assert [one.stand_by(now, may_claim=True) for one in idle] == [True] * PLACES + [False, False]


def test_a_place_that_is_left_is_another_s(idle: list[Standby]) -> None:
    first, *_, last = idle
    for one in idle:
        one.stand_by(0.0, may_claim=True)
    assert not last.stand_by(1.0, may_claim=True)
    first.leave()
    assert last.stand_by(2.0, may_claim=True)
    assert not first.stand_by(3.0, may_claim=True)


def test_the_place_of_a_dead_one_is_another_s_after_a_lease(idle: list[Standby]) -> None:
    _, *alive = idle
    for one in idle:
        one.stand_by(0.0, may_claim=True)
    for now in (20.0, 40.0, 59.0):
        assert [one.stand_by(now, may_claim=True) for one in alive] == [True] * (PLACES - 1) + [False, False]
    assert [one.stand_by(60.0, may_claim=True) for one in alive] == [True] * PLACES + [False]


def test_who_lost_its_place_goes(idle: list[Standby]) -> None:
    slow, *others = idle
    slow.stand_by(0.0, may_claim=True)
    for now in (0.0, 61.0):
        for one in others:
            one.stand_by(now, may_claim=True)
    assert not slow.stand_by(62.0, may_claim=True)


def test_of_a_large_run_more_stay(tmp_path: Path) -> None:
    layout = ChunkLayout(tmp_path)
    idle = [Standby(layout, "run", 1667, Holder(worker=f"w{number}", host="n"), LEASE_S) for number in range(30)]
    stays = [one.stand_by(0.0, may_claim=True) for one in idle]
    assert sum(stays) == 16
    for gone in (None, idle[0], idle[1], idle[15], idle[7]):
        if gone is not None:
            gone.leave()
        shares = [one.share_filter() for one in idle]
        for number in range(100):
            assert sum(is_mine(number) for is_mine in shares) == 1, "everything falls to somebody, once"
