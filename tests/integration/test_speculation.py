"""Workers that stand by copy what others have in flight: a copy counts only when the other was lost, and only once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from gymnast.chunks.held_chunk import Row
from gymnast.chunks.speculation import Speculation, SpeculativeResult
from gymnast.chunks.status import read_run_status
from gymnast.chunks.worker import WorkerExit
from gymnast.types.task import RolloutKey
from gymnast.types.totals import RolloutFacts
from tests.helpers.chunked_runs import small_run
from tests.helpers.waiting import eventually
from tests.integration.test_chunk_worker import LONG_S, QUICK, Crew, Hands, settled_once

SPECULATING = msgspec.structs.replace(QUICK, speculates=True)


@pytest.fixture(autouse=True)
def quick_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look soon for what is left."""
    monkeypatch.setattr("gymnast.chunks.upkeep._INTERVAL_S", 0.1)


def open_gate(hands: Hands) -> None:
    assert hands.gate is not None
    hands.gate.set()


def row(number: int) -> Row:
    return Row(number, 0, RolloutKey(number, 0), b"")


def ended(number: int) -> SpeculativeResult:
    return SpeculativeResult(row(number).key, b"x", RolloutFacts("a", 1.0), None, persisted=True)


def packed(*numbers: int) -> list[int]:
    return [row(number).key.packed for number in numbers]


def test_what_is_copied_goes_on_and_what_is_settled_elsewhere_does_not() -> None:
    speculation = Speculation()
    assert not speculation.retarget(map(row, range(5)), limit=3)
    first = [speculation.next_row(), speculation.next_row()]
    assert [one.number for one in first if one is not None] == [0, 1]
    speculation.keep(ended(0))
    assert not speculation.retarget(map(row, (0, 1, 4)), limit=3), "neither is in the way"
    assert [one.number for one in iter(speculation.next_row, None)] == [4]
    assert speculation.retarget(map(row, (0, 4)), limit=3), "1 was settled by whom it belongs to"
    assert packed(1)[0] not in speculation
    assert speculation.adopt(packed(0, 1, 4)) == {packed(0)[0]: ended(0), packed(4)[0]: None}
    assert not speculation


def test_a_copy_that_fails_is_started_again_when_it_is_looked_for_the_next_time() -> None:
    speculation = Speculation()
    speculation.retarget([row(0)], limit=3)
    speculation.next_row()
    speculation.discard(row(0).key)
    assert speculation.next_row() is None
    speculation.retarget([row(0)], limit=3)
    assert speculation.next_row() == row(0)


async def test_the_copies_of_a_lost_worker_are_its_rollouts(tmp_path: Path) -> None:
    """It falls silent with everything in flight. What was begun elsewhere meanwhile is not begun again."""
    run = small_run(tmp_path, 6, 1, 3)
    crew, slow, quick = Crew(run, SPECULATING), Hands(gate=asyncio.Event()), Hands(gate=asyncio.Event())
    lost = crew.start("lost", slow, concurrency=8)
    await eventually(lambda: len(crew.engines[0].in_flight) == 6 if crew.engines else False, within_s=LONG_S)
    standby = crew.start("standby", quick, concurrency=8)
    await eventually(lambda: len(crew.engines) == 2 and len(crew.engines[1].in_flight) == 6, within_s=LONG_S)
    account = read_run_status(run.layout)
    assert (account.scored, account.in_flight) == (0, 6), "copies are nobody's rollouts"
    open_gate(quick)
    await eventually(lambda: sum(quick.made.values()) == 6, within_s=LONG_S)
    assert read_run_status(run.layout).scored == 0
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)
    worked = await standby
    assert (worked.end, worked.finished.scored) == (WorkerExit.NOTHING_LEFT, 6)
    assert set(quick.made.values()) == {1}
    settled_once(run)


async def test_copies_end_when_the_others_are_quicker(tmp_path: Path) -> None:
    run = small_run(tmp_path, 4, 1, 4)
    crew, first, second = Crew(run, SPECULATING), Hands(gate=asyncio.Event()), Hands(gate=asyncio.Event())
    holder = crew.start("holder", first, concurrency=4)
    await eventually(lambda: len(crew.engines[0].in_flight) == 4 if crew.engines else False, within_s=LONG_S)
    standby = crew.start("standby", second, concurrency=2)
    await eventually(lambda: len(crew.engines) == 2 and len(crew.engines[1].in_flight) == 2, within_s=LONG_S)
    open_gate(first)
    async with asyncio.timeout(LONG_S):  # nobody waits for a copy, which here would be for ever
        worked = await asyncio.gather(holder, standby)
    assert [one.finished.scored for one in worked] == [4, 0]
    settled_once(run)


async def test_who_is_told_to_end_does_not_wait_for_copies(tmp_path: Path) -> None:
    run = small_run(tmp_path, 4, 1, 4)
    crew, hands = Crew(run, SPECULATING), Hands(gate=asyncio.Event())
    holder = crew.start("holder", hands, concurrency=4)
    await eventually(lambda: len(crew.engines[0].in_flight) == 4 if crew.engines else False, within_s=LONG_S)
    standby = crew.start("standby", hands, concurrency=4)
    await eventually(lambda: len(crew.engines) == 2 and len(crew.engines[1].in_flight) == 4, within_s=LONG_S)
    crew.engines[1].drain("told to")
    assert (await asyncio.wait_for(standby, LONG_S)).end is WorkerExit.DRAINED
    holder.cancel()
    await asyncio.gather(holder, return_exceptions=True)


async def test_without_speculation_nothing_is_copied(tmp_path: Path) -> None:
    run = small_run(tmp_path, 4, 1, 4)
    crew, hands = Crew(run, msgspec.structs.replace(QUICK, linger_s=0.3)), Hands(gate=asyncio.Event())
    holder = crew.start("holder", hands)
    await eventually(lambda: len(crew.engines[0].in_flight) == 4 if crew.engines else False, within_s=LONG_S)
    standby = crew.start("standby", hands)
    await eventually(run.layout.standby(0).path.exists, within_s=LONG_S)  # it stands by
    await asyncio.sleep(0.3)
    assert not crew.engines[1].in_flight
    open_gate(hands)
    await asyncio.gather(holder, standby)
    assert sum(hands.made.values()) == 4
    settled_once(run)
