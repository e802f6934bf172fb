"""Leases: whatever workers do, and whenever they die, every rollout is counted once and the merge is the same."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gymnast.chunks.held_chunk import HeldChunk
from gymnast.chunks.identity import is_dead, this_holder
from gymnast.chunks.lease import (
    LeaseMonitor,
    cede,
    claim,
    is_valid,
    pending_row_requests,
    request_rows,
    write_end,
    write_heartbeat,
)
from gymnast.chunks.merge import merge
from gymnast.chunks.settlement import settle
from gymnast.chunks.status import LivenessCheck, read_run_status
from gymnast.store.atomic import create_exclusive, read_fresh
from gymnast.store.chunk_files import Holder
from gymnast.store.chunk_state import complete_lines_bytes, read_folder_state
from gymnast.types.task import RolloutKey
from tests.helpers.chunked_runs import FACTS, SmallRun, commit, expected_output, failure, record, small_run

LEASE_S = 10.0


@dataclass
class Worker:
    """A worker with a clock of its own. It does not look whether it still holds what it holds, unless told to."""

    name: str
    skew_s: float
    monitor: LeaseMonitor = field(default_factory=lambda: LeaseMonitor(LEASE_S))
    held: dict[str, HeldChunk] = field(default_factory=dict)
    begun: list[tuple[HeldChunk, RolloutKey]] = field(default_factory=list)


class Leases(RuleBasedStateMachine):
    """Workers claim, write, beat, cede, end, die and rise again in any order. No clock is the same."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="leases-"))
        self.now = 0.0
        self.tokens = 0
        self.run: SmallRun
        self.workers: list[Worker] = []
        self.done: dict[str, int] = {}

    @initialize(
        tasks=st.integers(1, 4),
        repeats=st.integers(1, 4),
        rows=st.integers(1, 6),
        skews=st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3),
    )
    def plan(self, tasks: int, repeats: int, rows: int, skews: list[float]) -> None:
        self.run = small_run(self.folder, tasks, repeats, rows)
        self.workers = [Worker(f"w{number}", skew) for number, skew in enumerate(skews)]

    def token(self) -> str:
        self.tokens += 1
        return f"t{self.tokens}"

    def clock(self, worker: Worker) -> float:
        return self.now + worker.skew_s

    @rule(seconds=st.floats(0.1, 15.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=st.integers(0, 2), which=st.integers(0, 50), is_rash=st.booleans())
    def claims(self, *, who: int, which: int, is_rash: bool) -> None:
        """Also without need: that wastes work, and must not make anything wrong."""
        worker, views = self.workers[who], self.run.views()
        view = views[which % len(views)]
        may = worker.monitor.may_claim(view.folder_state, self.clock(worker))
        if view.folder_state.is_done or not (may or is_rash):
            return
        held = self.run.claim(view, worker.name, self.token())
        assert held is not None
        worker.held[held.chunk.id] = held

    @rule(who=st.integers(0, 2), count=st.integers(1, 3))
    def begins(self, who: int, count: int) -> None:
        worker = self.workers[who]
        for held in list(worker.held.values())[:1]:
            for _ in range(count):
                row = held.next_row()
                if row is not None:
                    worker.begun.append((held, row.key))

    @rule(who=st.integers(0, 2), how=st.sampled_from(["scored", "failed", "final"]))
    def finishes(self, who: int, how: str) -> None:
        worker = self.workers[who]
        if not worker.begun:
            return
        held, key = worker.begun.pop(0)
        if held.chunk.id not in worker.held or worker.held[held.chunk.id] is not held:
            return
        if how == "failed":
            held.record_failed(key, failure(key, 0, final=False), "model_error", "a", final=False)
            worker.begun.append((held, key))
        elif how == "final" and key.task == 0:  # only tasks of number 0 may fail for good, so that the end is known
            held.record_failed(key, failure(key, 0, final=True), "model_error", "a", final=True)
        else:
            held.record_scored(key, record(key), FACTS)

    @rule(who=st.integers(0, 2), tears=st.booleans())
    def commits(self, *, who: int, tears: bool) -> None:
        """A write may also be cut anywhere: half of it is on disk, and it is done again later, or never."""
        for held in self.workers[who].held.values():
            if tears:
                data = held.scored.take_pending()
                held.scored.write(data[: len(data) // 2], held.scored.committed)
            else:
                commit(held)

    @rule(who=st.integers(0, 2))
    def beats(self, who: int) -> None:
        for held in self.workers[who].held.values():
            write_heartbeat(held.folder, held.lease, held.next_heartbeat(0.0, in_flight=0, is_draining=False))

    @rule(who=st.integers(0, 2))
    def looks(self, who: int) -> None:
        worker = self.workers[who]
        for held in list(worker.held.values()):
            if not is_valid(self.run.layout, held.lease):
                del worker.held[held.chunk.id]

    @rule(who=st.integers(0, 2), count=st.integers(1, 4))
    def cedes(self, who: int, count: int) -> None:
        for held in self.workers[who].held.values():
            if len(held.unstarted) >= count:
                going = held.start_ceding(count)
                cede(held.folder, held.lease, going.number, going.child, going.attempts)
                held.finish_ceding()

    @rule(who=st.integers(0, 2))
    def ends(self, who: int) -> None:
        """Done if everything is settled, else handed back."""
        worker = self.workers[who]
        for held in list(worker.held.values()):
            commit(held)
            write_end(held.folder, held.lease, held.end(0.0))
            held.close()
            del worker.held[held.chunk.id]

    @rule(who=st.integers(0, 2))
    def dies(self, who: int) -> None:
        worker = self.workers[who]
        for held in worker.held.values():
            held.close()
        worker.held.clear()
        worker.begun.clear()

    @invariant()
    def nothing_counts_twice(self) -> None:
        if not self.workers:
            return
        seen: set[int] = set()
        for view in self.run.views():
            found = settle(view.folder_state.folder, view.folder_state.current_seals())
            assert not found.duplicates
            assert not found.damaged
            settled = found.scored | set(found.failed)
            assert not seen & settled
            seen |= settled
        account = read_run_status(self.run.layout, LivenessCheck(now=0.0))
        assert account.requested == len(seen) + account.unsettled
        assert account.scored + sum(account.failed.values()) == len(seen)
        assert sum(worker.scored for worker in account.workers) == account.scored
        assert sum((Counter(worker.failed) for worker in account.workers), Counter()) == Counter(account.failed)

    @invariant()
    def what_is_done_stays_done(self) -> None:
        if not self.workers:
            return
        states = {view.chunk.id: view.folder_state for view in self.run.views()}
        now = {name: state.lease.epoch for name, state in states.items() if state.is_done and state.lease}
        for chunk, epoch in self.done.items():
            parents = [one for one in self.done if chunk.startswith(one + ".")]
            assert now.get(chunk) == epoch or parents or chunk not in {v.chunk.id for v in self.run.views()}
        self.done = now

    def teardown(self) -> None:
        """An honest worker finishes what is left; then the merge is what it would have been without all this."""
        if self.workers:
            self._finish()
            failed = {key for view in self.run.views() for key in _failed(view)}
            counts = merge(self.run.paths)
            assert counts.owed == 0
            assert self.run.paths.output.read_bytes() == expected_output(self.run, failed)
        for worker in self.workers:
            for held in worker.held.values():
                held.close()
        shutil.rmtree(self.folder)

    def _finish(self) -> None:
        while (view := next((view for view in self.run.views() if not view.folder_state.is_done), None)) is not None:
            held = self.run.claim(view, "last", self.token())
            assert held is not None
            _work_off(held)


def _work_off(held: HeldChunk) -> None:
    """Score all that is left, and end."""
    while (row := held.next_row()) is not None:
        held.record_scored(row.key, record(row.key), FACTS)
    commit(held)
    write_end(held.folder, held.lease, held.end(0.0))
    held.close()


def _failed(view: object) -> set[RolloutKey]:
    folder_state = view.folder_state  # type: ignore[attr-defined]
    failed = settle(folder_state.folder, folder_state.current_seals()).failed
    return {RolloutKey(packed >> 32, packed & 0xFFFFFFFF) for packed in failed}


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=20, stateful_step_count=40)


def test_a_silent_holder_is_known_by_the_claimers_clock_alone(tmp_path: Path) -> None:
    run = small_run(tmp_path, 1, 2, 2)
    held = run.claim(run.view("00000"), "a", "t1")
    assert held is not None
    monitor = LeaseMonitor(LEASE_S)
    assert not monitor.may_claim(run.view("00000").folder_state, 1e9)  # just met: whatever the clock says
    assert not monitor.may_claim(run.view("00000").folder_state, 1e9 + LEASE_S - 0.1)
    write_heartbeat(
        held.folder, held.lease, held.next_heartbeat(-1e12, in_flight=0, is_draining=False)
    )  # its clock is far behind
    assert not monitor.may_claim(run.view("00000").folder_state, 1e9 + LEASE_S)
    assert monitor.may_claim(run.view("00000").folder_state, 1e9 + 2 * LEASE_S)


def test_a_dead_process_of_this_host_is_not_waited_for(tmp_path: Path) -> None:
    run = small_run(tmp_path, 1, 1, 1)
    me = this_holder("me")
    dead = Holder(worker="dead", pid=me.pid, started=me.started + 1, pid_namespace=me.pid_namespace)
    elsewhere = Holder(worker="elsewhere", pid=me.pid, started=me.started + 1, pid_namespace="another boot")
    assert is_dead(dead)
    assert not is_dead(elsewhere)
    assert not is_dead(me)
    won = claim(run.view("00000").folder_state, holder=dead, token="t")
    assert won is not None
    assert LeaseMonitor(LEASE_S, is_dead).may_claim(run.view("00000").folder_state, 0.0)


def test_a_zombie_writes_in_vain(tmp_path: Path) -> None:
    """Node lost, its job runs on: what it writes after the next claim counts for nothing, its end neither."""
    run = small_run(tmp_path, 4, 1, 4)
    zombie = run.claim(run.view("00000"), "zombie", "t1")
    assert zombie is not None
    rows = list(zombie.unstarted)
    zombie.record_scored(rows[0].key, record(rows[0].key), FACTS)
    commit(zombie)
    heir = run.claim(run.view("00000"), "heir", "t2")
    assert heir is not None
    assert {row.key for row in heir.unstarted} == {row.key for row in rows[1:]}
    for row in rows[1:]:
        zombie.record_scored(row.key, record(row.key), FACTS)
    commit(zombie)
    write_end(zombie.folder, zombie.lease, zombie.end(0.0))
    assert not is_valid(run.layout, zombie.lease)
    assert read_run_status(run.layout).scored == 1
    zombie.close()
    heir.close()


@pytest.mark.parametrize(
    "left",
    [None, b"", b'{"token":"t1","kind":"do', b'{"token":"\xff\xfe"}', bytes(300)],
    ids=["gone", "empty", "torn", "no text", "zeros"],
)
def test_an_end_that_a_power_failure_took_costs_a_claim(tmp_path: Path, left: bytes | None) -> None:
    """Records are made to last, ends are not: whoever takes the chunk again finds all of it settled."""
    run = small_run(tmp_path, 4, 1, 4)
    held = run.claim(run.view("00000"), "a", "t1")
    assert held is not None
    _work_off(held)
    end = held.folder.end(1)
    end.unlink()
    if left is not None:
        end.write_bytes(left)
    assert read_run_status(run.layout, LivenessCheck(is_dead=lambda _: True)).states["silent"] == 1
    heir = run.claim(run.view("00000"), "b", "t2")
    assert heir is not None
    assert heir.is_settled
    _work_off(heir)
    merge(run.paths)
    assert run.paths.output.read_bytes() == expected_output(run)


def test_rows_come_whole_from_a_file_system_that_gives_little_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, offset: pread(file, min(size, 100), offset))
    run = small_run(tmp_path, 40, 1, 40)
    held = run.claim(run.view("00000"), "a", "t1")
    assert held is not None
    assert len(held.unstarted) == 40


def test_of_many_claimers_one_wins(tmp_path: Path) -> None:
    run = small_run(tmp_path, 1, 1, 1)
    folder_state = run.view("00000").folder_state
    won = [claim(folder_state, holder=Holder(worker=f"w{n}"), token=f"t{n}") for n in range(5)]
    assert sum(one is not None for one in won) == 1


def test_a_lost_reply_of_the_file_system_is_not_a_lost_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS may carry a link out, lose the reply, try again, and say that it exists already."""
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", twice)
    assert create_exclusive(tmp_path / "a", b"x", "me")
    assert not create_exclusive(tmp_path / "a", b"y", "other")
    assert (tmp_path / "a").read_bytes() == b"x"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def stale_opens(monkeypatch: pytest.MonkeyPatch, times: int) -> list[float]:
    """So many files that are opened are stale, as on a network file system; returns how long was slept."""
    real, left, slept = os.open, [times], list[float]()

    def opened(*arguments: Any) -> int:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(*arguments)

    monkeypatch.setattr("gymnast.store.atomic.os.open", opened)
    monkeypatch.setattr("gymnast.store.atomic.time.sleep", slept.append)
    return slept


@pytest.mark.parametrize("times", [1, 4])
def test_a_file_that_was_replaced_elsewhere_is_read_again(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beat.1.json").write_bytes(b"new")
    stale_opens(monkeypatch, times)
    assert read_fresh(tmp_path / "beat.1.json") == b"new"


def test_a_file_that_stays_stale_is_tried_for_longer_than_names_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = stale_opens(monkeypatch, 100)
    with pytest.raises(OSError, match="Stale"):
        read_fresh(tmp_path / "beat.1.json")
    assert sum(slept) > 2


def test_rows_that_are_asked_for_are_ceded_with_their_attempts(tmp_path: Path) -> None:
    run = small_run(tmp_path, 4, 1, 4)
    held = run.claim(run.view("00000"), "a", "t1")
    assert held is not None
    last = held.unstarted[-1].key
    held.record_failed(last, failure(last, 0, final=False), "model_error", "a", final=False)
    request_rows(held.folder, held.lease, "idle")
    assert pending_row_requests(read_folder_state(held.folder, run.plan.run_id), 1) == ["idle"]
    going = held.start_ceding(2)
    cede(held.folder, held.lease, going.number, going.child, going.attempts)
    cede(held.folder, held.lease, going.number, going.child, going.attempts)  # after a refused write: again
    held.finish_ceding()
    child = run.view("00000.1.0")
    assert child.chunk.requested == 2
    taken = run.claim(child, "idle", "t2")
    assert taken is not None
    assert [row.key.task for row in taken.unstarted] == [2, 3]
    assert taken.attempts == {last.packed: 1}
    account = read_run_status(run.layout, LivenessCheck(now=0.0))
    assert [one.requested for one in account.chunks] == [2, 2]
    held.close()
    taken.close()


def test_a_torn_heartbeat_is_none(tmp_path: Path) -> None:
    """Heartbeats are not synced: after a power failure one may be empty, and the run must go on."""
    run = small_run(tmp_path, 2, 1, 2)
    held = run.claim(run.view("00000"), "a", "t1")
    assert held is not None
    held.folder.heartbeat(1).write_bytes(b"")
    assert run.view("00000").folder_state.heartbeat is None
    assert read_run_status(run.layout).owed == 2
    assert LeaseMonitor().silent_s(run.view("00000").folder_state, 0.0) == 0.0
    held.close()


def test_a_file_that_was_replaced_while_it_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As network file systems do it to whoever looks at a run with many workers."""
    run = small_run(tmp_path, 2, 1, 2)
    held = run.claim(run.view("00000"), "a", "t1")
    assert held is not None
    real, stale = Path.read_bytes, Counter[str]()

    def read(path: Path) -> bytes:
        stale[path.name] += 1
        if path.name.startswith("beat") and stale[path.name] == 1:
            raise OSError(errno.ESTALE, "stale file handle")
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    heartbeat = run.view("00000").folder_state.heartbeat
    assert heartbeat is not None
    assert heartbeat.token == "t1"
    held.close()


def test_a_holder_of_a_replaced_run_disturbs_nobody(tmp_path: Path) -> None:
    """Same names, another run: leases, beats and ends of the old one are not this one's."""
    old = small_run(tmp_path / "old", 2, 1, 2)
    zombie = old.claim(old.view("00000"), "zombie", "t1")
    assert zombie is not None
    new = small_run(tmp_path / "new", 2, 1, 2)
    held = new.claim(new.view("00000"), "a", "t2")
    assert held is not None
    write_heartbeat(held.folder, zombie.lease, zombie.next_heartbeat(0.0, in_flight=7, is_draining=False))
    write_end(held.folder, zombie.lease, zombie.end(0.0))
    folder_state = new.view("00000").folder_state
    assert folder_state.heartbeat is None
    assert folder_state.end is None
    shutil.copy(zombie.folder.lease(1), held.folder.lease(2))
    folder_state = new.view("00000").folder_state
    assert folder_state.lease is None
    assert folder_state.last_epoch == 2
    zombie.close()
    held.close()


@pytest.mark.parametrize(
    ("data", "whole"), [(b"", 0), (b"a", 0), (b"a\n", 2), (b"a\nb", 2), (b"x" * 70000, 0), (b"a\n" + b"x" * 70000, 2)]
)
def test_only_whole_lines_count(tmp_path: Path, data: bytes, whole: int) -> None:
    (tmp_path / "f").write_bytes(data)
    assert complete_lines_bytes(tmp_path / "f") == whole
    assert complete_lines_bytes(tmp_path / "none") == 0
