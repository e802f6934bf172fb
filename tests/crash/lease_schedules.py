"""Schedules against the leases of chunks on a disk that forgets: several workers, interleaved between system calls.

Workers claim chunks, record, commit, send heartbeats, cede rows and end, while they are paused, killed or deceived by
their clocks and by listings of folders that are out of date; the disk fails, fills up and loses what was not synced. A
paused worker goes on writing after another one took its chunk.

The promise: every rollout is settled exactly once in the merged run, by a record that a worker wrote; counts add up;
what a commit has acknowledged survives power failures, and a claim takes over what was acknowledged before it began.

A seed decides everything: `python -m tests.crash.lease_schedules SEED [LAST]`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from gymnast.chunks.held_chunk import HeldChunk, Row
from gymnast.chunks.lease import LeaseMonitor, cede, is_valid, write_end, write_heartbeat
from gymnast.chunks.merge import merge
from gymnast.chunks.settlement import read_lines_between
from gymnast.store.chunk_state import ChunkView
from gymnast.types.task import RolloutKey
from tests.crash.fake_disk import Chances, Crash, FakeDisk
from tests.crash.seeds import carry_out_seeds
from tests.helpers.chunked_runs import FACTS, SmallRun, failure, identity, small_run
from tests.helpers.jsonl import read_jsonl

LEASE_S: Final = 10.0
MAX_DEPTH: Final = 2
MAX_ATTEMPTS: Final = 3


@dataclass
class Worker:
    """A worker as the simulation knows it."""

    name: str
    clock_s: float
    rate: float
    monitor: LeaseMonitor = field(default_factory=lambda: LeaseMonitor(LEASE_S))
    held: HeldChunk | None = None
    recorded: list[int] = field(default_factory=list)
    """The nonces of its records in this lease, in order."""
    committed: int = 0
    """How many of them are on disk."""
    retrying: list[Row] = field(default_factory=list)
    """Rows with a failed attempt."""
    paused: int = 0
    """Steps to skip."""

    def drop(self) -> None:
        """It no longer holds a chunk."""
        if self.held is not None:
            self.held.close()
        self.held, self.recorded, self.committed, self.retrying = None, [], 0, []


@dataclass
class LeaseSimulation:
    """A run in chunks, its workers, and what was promised about it."""

    folder: Path
    chance: random.Random
    log: list[str] = field(default_factory=list)
    written: dict[RolloutKey, set[int]] = field(default_factory=dict)
    promised: dict[str, set[int]] = field(default_factory=dict)
    """Acknowledged records, by chunk."""
    nonce: int = 0
    claims: int = 0
    commits: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        chance = self.chance
        self.disk = FakeDisk(self.folder / "disk", chance, ordered=chance.random() < 0.5, log=self.log)
        self.log.append("ordered" if self.disk.ordered else "posix")
        self.tasks, self.repeats = chance.randint(1, 4), chance.randint(1, 3)
        self.run_files: SmallRun = small_run(
            self.disk.folder, self.tasks, self.repeats, chance.randint(1, self.tasks * self.repeats)
        )
        self.workers = [
            Worker(f"w{number}", chance.uniform(0, 1000), chance.choice([0.5, 1.0, 1.0, 3.0]))
            for number in range(chance.randint(2, 3))
        ]

    def run(self) -> None:
        with self.disk.open():
            for _ in range(self.chance.randint(5, 60)):
                self._step_badly()
            self._finish()

    # --- steps -------------------------------------------------------------------------------------------------------

    def _step_badly(self) -> None:
        """One step of a worker, with the faults and interruptions of the moment."""
        chance, disk = self.chance, self.disk
        disk.chance_of = Chances(
            no_space=chance.choice([0, 0, 0.1]),
            io_error=chance.choice([0, 0, 0.2]),
            short_write=chance.choice([0, 0.5]),
            preempt=chance.choice([0, 0.1, 0.4]),
            stale_listing=chance.choice([0, 0, 0.5]),
        )
        disk.preempt = self._step_other
        disk.crash_at = chance.randint(0, 12) if chance.random() < 0.12 else None
        try:
            self._step(chance.choice(self.workers))
        except Crash:
            self._lose_power()
        disk.crash_at = None
        if chance.random() < 0.03:
            self._lose_power()

    def _step_other(self) -> None:
        """Another worker does something while one is in the middle of a call."""
        others = [worker for worker in self.workers if worker.name != self.disk.actor]
        if self.depth < MAX_DEPTH and others:
            self._step(self.chance.choice(others))

    def _step(self, worker: Worker) -> None:
        if worker.paused:
            worker.paused -= 1
            return
        worker.clock_s += self.chance.choice([0, 1, 4]) * worker.rate
        if self.chance.random() < 0.05:
            worker.clock_s += self.chance.choice([5.0, 100.0])  # its machine was suspended
        if self.chance.random() < 0.05:
            worker.paused = self.chance.randint(1, 10)
        before, self.disk.actor = self.disk.actor, worker.name
        self.depth += 1
        try:
            self._act(worker)
        except OSError as error:
            self.log.append(f"{worker.name}: {error.strerror}")
        except Crash:
            if self.depth > 1 or self.chance.random() < 0.5:
                self.disk.revive()
                self.log.append(f"{worker.name} was killed")
                worker.drop()
            else:
                raise
        finally:
            self.depth -= 1
            self.disk.actor = before

    def _act(self, worker: Worker) -> None:
        held = worker.held
        if held is None:
            self._claim(worker)
        elif held.ceding is not None:
            self._cede(held)
        elif held.is_settled and not held.pending_bytes:
            self._end(worker, held)
        else:
            action = self.chance.choices(
                ["record", "commit", "heartbeat", "cede", "release"], [10, 6, 3, 1 if len(held.unstarted) > 1 else 0, 1]
            )[0]
            if action == "record":
                self._record(worker, held)
            elif action == "commit":
                self._commit(worker, held)
            elif action == "heartbeat":
                self._beat(worker, held)
            elif action == "cede":
                held.start_ceding(self.chance.randint(1, len(held.unstarted) - 1))
                self._cede(held)
            elif not held.pending_bytes:
                self._end(worker, held)

    def _claim(self, worker: Worker) -> None:
        window = (self.commits, self.disk.chance_of.stale_listing)
        views = [view for view in self.run_files.views() if worker.monitor.may_claim(view.folder_state, worker.clock_s)]
        if not views:
            return
        self.claims += 1
        view = self.chance.choice(views)
        try:
            worker.held = self.run_files.claim(view, worker.name, f"t{self.claims}")
        finally:  # even if it died right after its lease was there
            counted = self._counted()
            # Nothing was acknowledged in between, and nobody else is in the middle of a claim.
            if self.depth == 1 and window == (self.commits, 0):
                self._check_kept(counted, f"the claim of {view.chunk.id} by {worker.name}")
            self.promised = {chunk: nonces & counted.get(chunk, set()) for chunk, nonces in self.promised.items()}

    def _record(self, worker: Worker, held: HeldChunk) -> None:
        row = worker.retrying.pop() if worker.retrying else held.next_row()
        if row is None:
            return
        self.nonce += 1
        if self.chance.random() < 0.75:
            self.written.setdefault(row.key, set()).add(self.nonce)
            body = {"reward": 1.0, "nonce": self.nonce, "by": worker.name, "pad": "x" * self.chance.choice([0, 300])}
            held.record_scored(row.key, orjson.dumps({**body, "agent_ref": {"name": "a"}, **identity(row.key)}), FACTS)
            worker.recorded.append(self.nonce)
            return
        made = held.attempts.get(row.key.packed, 0) + 1
        final = made >= MAX_ATTEMPTS or self.chance.random() < 0.3
        held.record_failed(row.key, failure(row.key, made, final=final), "model_error", "a", final=final)
        if not final:
            worker.retrying.append(row)

    def _commit(self, worker: Worker, held: HeldChunk) -> None:
        taken = len(worker.recorded)
        pending = held.take_pending()
        pending.write()
        held.confirm(pending)
        worker.committed = taken
        with self._undisturbed():
            if is_valid(self.run_files.layout, held.lease):
                self.commits += 1
                self.promised.setdefault(held.chunk.id, set()).update(worker.recorded[:taken])

    def _beat(self, worker: Worker, held: HeldChunk) -> None:
        if not is_valid(self.run_files.layout, held.lease):
            self.log.append(f"{worker.name} noticed that it lost {held.chunk.id}")
            worker.drop()
            return
        beat = held.next_heartbeat(self.chance.uniform(-1e9, 1e9), in_flight=0, is_draining=False)
        write_heartbeat(held.folder, held.lease, beat)

    def _cede(self, held: HeldChunk) -> None:
        cession = held.ceding
        assert cession is not None
        cede(held.folder, held.lease, cession.number, cession.child, cession.attempts)
        held.finish_ceding()

    def _end(self, worker: Worker, held: HeldChunk) -> None:
        write_end(held.folder, held.lease, held.end(0.0))
        self.log.append(f"{worker.name} ended {held.chunk.id}")
        worker.drop()

    def _lose_power(self) -> None:
        self.log.append("power failure")
        for worker in self.workers:
            worker.drop()
        self.disk.fail(power=True)
        self._check_kept(self._counted(), "a power failure")

    # --- the end -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """A calm worker does the rest, the run is merged, and the power fails once more."""
        self.disk.chance_of, self.disk.preempt, self.disk.actor = Chances(), None, "last"
        for worker in self.workers:
            worker.drop()
        last = Worker("last", 0.0, 1.0, LeaseMonitor(0.0))
        while owed := [view for view in self.run_files.views() if not view.folder_state.is_done]:
            self._complete(last, owed[0])
        counts = merge(self.run_files.paths)
        assert counts.owed == 0
        requested = self.tasks * self.repeats
        assert counts.scored + sum(counts.failed.values()) == counts.requested == requested
        self.disk.fail(power=True)
        self._audit(counts.scored)

    def _complete(self, worker: Worker, view: ChunkView) -> None:
        self.claims += 1
        held = self.run_files.claim(view, worker.name, f"t{self.claims}")
        assert held is not None
        worker.held = held
        self._check_kept(self._counted(), "the last claim")
        while held.unstarted or worker.retrying:
            self._record(worker, held)
        self._commit(worker, held)
        self._end(worker, held)

    def _audit(self, scored: int) -> None:
        records = read_jsonl(self.run_files.paths.output)
        failures = read_jsonl(self.run_files.paths.failures)
        keys = [_key(record) for record in records]
        final = {_key(record) for record in failures if record.get("_ng_failure_terminal")} - set(keys)
        assert len(keys) == len(set(keys)) == scored, "a rollout twice, or not at all"
        assert all(record["nonce"] in self.written[_key(record)] for record in records), "an invented record"
        assert len(keys) + len(final) == self.tasks * self.repeats
        nonces = {record["nonce"] for record in records}
        lost = {nonce for promised in self.promised.values() for nonce in promised} - nonces
        assert not lost, f"acknowledged records are not in the merged run: {lost}"
        assert self.run_files.paths.done.exists()

    # --- the promise -------------------------------------------------------------------------------------------------

    def _check_kept(self, counted: dict[str, set[int]], what: str) -> None:
        for chunk, nonces in self.promised.items():
            lost = nonces - counted.get(chunk, set())
            assert not lost, f"{what} lost {len(lost)} acknowledged records of {chunk}"

    def _counted(self) -> dict[str, set[int]]:
        """The records that count now, by chunk."""
        with self._undisturbed():
            return {view.chunk.id: set(_nonces(view)) for view in self.run_files.views()}

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Look at the disk as it is."""
        disk = self.disk
        before = disk.chance_of, disk.preempt, disk.actor
        disk.chance_of, disk.preempt, disk.actor = Chances(), None, ""
        try:
            yield
        finally:
            disk.chance_of, disk.preempt, disk.actor = before


def _nonces(view: ChunkView) -> Iterator[int]:
    folder = view.folder_state.folder
    for seal in view.folder_state.current_seals():
        for line in read_lines_between(folder.scored_records(seal.epoch), 0, seal.scored_bytes):
            try:
                record: dict[str, Any] = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            yield record["nonce"]


def _key(record: dict[str, Any]) -> RolloutKey:
    return RolloutKey(record["_ng_task_index"], record["_ng_rollout_index"])


def simulate(seed: int, folder: Path) -> list[str]:
    """Carry out the schedule of a seed; what happened in it. Raises AssertionError if the promise was broken."""
    simulation = LeaseSimulation(folder, random.Random(seed))
    try:
        simulation.run()
    except BaseException as error:
        error.add_note(f"seed {seed}: {', '.join(simulation.log)}")
        raise
    return simulation.log


if __name__ == "__main__":
    carry_out_seeds(simulate)
