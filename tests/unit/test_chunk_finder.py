"""Finding chunks in a large run: nobody looks at everything, and still nothing that was left behind is missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.chunks import finder as finder_module
from gymnast.chunks.finder import Clock, Finder, NoChunk
from gymnast.chunks.held_chunk import HeldChunk
from gymnast.chunks.lease import DEFAULT_LEASE_S, LeaseMonitor, write_heartbeat
from gymnast.store.chunk_files import Holder
from gymnast.store.chunk_state import walk_chunk
from tests.helpers.chunked_runs import SmallRun, small_run

CHUNKS = 200
PAUSE_S = DEFAULT_LEASE_S / 8
"""Between two looks of somebody without any work."""


class Looker:
    """A worker that looks for chunks, on a clock of its own."""

    def __init__(self, run: SmallRun, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.looks = 0.0
        holder = Holder(worker=name, host=name)
        clock = Clock(lambda: self.now, lambda: self.now)
        self.finder = Finder(run.layout, run.plan, run.paths.materialized_inputs, holder, LeaseMonitor(), clock)

        def counted(*arguments: object, **options: object) -> object:
            self.looks += 1
            return walk_chunk(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(finder_module, "walk_chunk", counted)

    def take_all(self) -> list[HeldChunk]:
        found: list[HeldChunk] = []
        while isinstance(one := self.finder.find({held.chunk.id for held in found}, may_request=True), HeldChunk):
            found.append(one)
        return found


@pytest.fixture
def run(tmp_path: Path) -> SmallRun:
    return small_run(tmp_path, CHUNKS, 1, 1)


def test_all_that_dead_workers_held_is_found_while_a_worker_lingers(
    run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(Looker(run, "dead", monkeypatch).take_all()) == CHUNKS
    heir = Looker(run, "heir", monkeypatch)
    first_at = None
    while first_at is None:
        if isinstance(heir.finder.find((), may_request=True), HeldChunk):
            first_at = heir.now
        heir.now += PAUSE_S
        assert heir.now <= 2 * DEFAULT_LEASE_S + PAUSE_S, "it would have left"
    assert first_at >= DEFAULT_LEASE_S


def test_living_workers_keep_their_chunks_and_one_look_is_at_few_of_them(
    run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = Looker(run, "alive", monkeypatch).take_all()
    other = Looker(run, "other", monkeypatch)
    for turn in range(15):
        for held in alive:
            write_heartbeat(held.folder, held.lease, held.next_heartbeat(0.0, in_flight=0, is_draining=False))
        before, other.now = other.looks, turn * DEFAULT_LEASE_S / 2
        assert other.finder.find({"one of its own"}, may_request=True) is NoChunk.NOW
        assert other.looks - before <= 8


def test_somebody_with_full_hands_looks_at_nothing(run: SmallRun, monkeypatch: pytest.MonkeyPatch) -> None:
    Looker(run, "first", monkeypatch).take_all()
    other = Looker(run, "other", monkeypatch)
    assert other.finder.find((), may_request=False) is NoChunk.NOW
    assert other.looks == 0
