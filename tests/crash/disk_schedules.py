"""Schedules against the run store on a disk that forgets (`fake_disk`): power failures, kills, full disks, clock jumps.

A seed decides everything: `python -m tests.crash.disk_schedules SEED [LAST]` repeats schedules. The promise:
requested = scored + failed + owed; nothing twice, nothing invented; what a commit has acknowledged survives every power
failure; a run that says it is complete has all of its records; a disk that fails is an error with a next step.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from gymnast.errors import UserError
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.prepare import prepare_run
from gymnast.rollouts.run_store import FileRunStore
from gymnast.store.lock import RunLock
from gymnast.store.manifest import RunState
from gymnast.store.paths import RunPaths
from gymnast.types.task import RolloutKey
from gymnast.types.totals import RolloutFacts
from tests.crash.fake_disk import Chances, Crash, FakeDisk, shifted_clock
from tests.crash.seeds import carry_out_seeds
from tests.helpers.jsonl import read_jsonl, write_jsonl

MAX_ATTEMPTS: Final = 3
_DAY_S: Final = 86_400.0


@dataclass
class DiskSimulation:
    """A run on a disk that forgets, and what was promised about it."""

    folder: Path
    chance: random.Random
    written: dict[RolloutKey, set[int]] = field(default_factory=dict)
    """The nonces of all records ever passed to a store, by rollout."""
    promised: dict[RolloutKey, int] = field(default_factory=dict)
    """Records that a commit has acknowledged."""
    log: list[str] = field(default_factory=list)
    nonce: int = 0

    def __post_init__(self) -> None:
        self.disk = FakeDisk(self.folder / "disk", self.chance, ordered=self.chance.random() < 0.5, log=self.log)
        self.log.append("ordered" if self.disk.ordered else "posix")
        self.paths = RunPaths(self.disk.folder / "x.jsonl")
        tasks, repeats = self.chance.choice([1, 1, 2, 3, 4]), self.chance.choice([1, 1, 2, 3])
        params = {"input": "q"}
        rows = [{"responses_create_params": params, "agent_ref": {"name": "a"}, "n": n} for n in range(tasks)]
        source = write_jsonl(self.folder / "in.jsonl", rows)
        plan = PlanOptions(repeats=repeats)
        self.options = RunOptions(
            source=source, output=self.paths.output, plan=plan, existing="resume", aggregate=False
        )
        self.requested = tasks * repeats
        self.disk.folder.mkdir()

    async def run(self) -> None:
        with self.disk.open():
            for _ in range(self.chance.randint(1, 6)):
                await self._invoke_badly()
            self.disk.chance_of = Chances()
            self.log.append("to the end")
            await self._invoke(surely=True)
            self.disk.fail(power=True)  # complete means complete after this, too
            self._audit()

    async def _invoke_badly(self) -> None:
        """One process with its faults, its clock and its end."""
        disk, chance = self.disk, self.chance
        kind = chance.choice(["calm", "crash", "crash", "crash", "full", "failing", "short"])
        disk.crash_on = chance.choice(["", "fsync", "fsync x.jsonl"])
        limit = {"": 40, "fsync": 12, "fsync x.jsonl": 2}[disk.crash_on]
        disk.crash_at = chance.randint(0, limit) if kind == "crash" else None
        disk.chance_of = Chances(
            no_space=0.1 if kind == "full" else 0.0,
            io_error=0.2 if kind == "failing" else 0.0,
            short_write=0.5 if kind == "short" else 0.0,
        )
        jump_s = chance.choice([0.0, 0.0, -3 * _DAY_S, -1.0, 5.0, 400 * _DAY_S])
        self.log.append(f"{kind}, clock {jump_s:+g} s")
        power = chance.random() < 0.6
        try:
            with shifted_clock(jump_s):
                await self._invoke()
        except Crash:
            self.log.append("power failure" if power else "kill")
            disk.fail(power=power)
        except (UserError, OSError) as error:  # commands explain both
            if kind not in {"full", "failing"}:
                raise
            self.log.append(f"refused: {error}")
        disk.crash_at = None
        if chance.random() < 0.3:
            disk.fail(power=True)
            self.log.append("power failure later")

    async def _invoke(self, *, surely: bool = False) -> None:
        with RunLock(self.paths.lock):
            prepared = prepare_run(self.options, ["a"], lambda _: [])
            store = FileRunStore(self.paths, prepared.manifest, max_attempts=MAX_ATTEMPTS)
            async with store:
                self._check_promised(store)
                for key, _ in list(store.owed_inputs()):
                    self._settle(store, key, surely=surely)
                    if self.chance.random() < 0.3:
                        await store._scored_log.commit()
                        self._promise(store)
                    elif self.chance.random() < 0.1:
                        await store.save(RunState.RUNNING)
                        self._promise(store)
                if surely or self.chance.random() < 0.8:
                    owed = store.counts().owed
                    await store.save(RunState.COMPLETE if owed == 0 else RunState.INCOMPLETE)
                    self._promise(store)
                counts = store.counts()
                assert counts.requested == counts.scored + sum(counts.failed.values()) + counts.owed == self.requested
            self._promise(store)  # leaving it commits

    def _settle(self, store: FileRunStore, key: RolloutKey, *, surely: bool) -> None:
        self.nonce += 1
        action = "score" if surely or self.chance.random() < 0.7 else self.chance.choice(["fail", "give up"])
        identity = {"_ng_task_index": key.task, "_ng_rollout_index": key.rollout}
        if action == "score":
            self.written.setdefault(key, set()).add(self.nonce)
            padding = "x" * self.chance.choice([0, 10, 2000])
            line = orjson.dumps({"reward": 1.0, "nonce": self.nonce, "padding": padding, **identity})
            store.record_scored(key, line, RolloutFacts("a", 1.0))
        else:
            final = action == "give up" or store.attempts_of(key) + 1 >= MAX_ATTEMPTS
            failure = {"kind": "model_error", "run_id": store.run_id}
            line = orjson.dumps({"failure": failure, "_ng_failure_terminal": final, **identity})
            store.record_failed(key, line, "model_error", "a", final=final)

    # --- the promise -------------------------------------------------------------------------------------------------

    def _promise(self, store: FileRunStore) -> None:
        """What is in the file now was acknowledged, whoever wrote it."""
        records = read_jsonl(self.paths.output)
        assert len(records) == len(store.settled.scored), "a commit left records out"
        self.promised = {_key(record): record["nonce"] for record in records}

    def _check_promised(self, store: FileRunStore) -> None:
        found = {_key(record): record["nonce"] for record in read_jsonl(self.paths.output)}
        for key, nonce in self.promised.items():
            assert found.get(key) == nonce, f"the acknowledged record of {key} was lost"
        assert len(found) == len(store.settled.scored)

    def _audit(self) -> None:
        records = read_jsonl(self.paths.output)
        keys = [_key(record) for record in records]
        assert len(keys) == len(set(keys)), "a rollout twice"
        assert all(record["nonce"] in self.written[_key(record)] for record in records), "an invented record"
        assert {_key(record): record["nonce"] for record in records} == self.promised, "an acknowledged record was lost"
        assert self.paths.done.exists(), "a complete run is not marked as complete"
        counts = orjson.loads(self.paths.done.read_bytes())
        assert counts["scored"] == len(records)
        assert counts["requested"] == counts["scored"] + sum(counts["failed"].values()) == self.requested


def _key(record: dict[str, int]) -> RolloutKey:
    return RolloutKey(record["_ng_task_index"], record["_ng_rollout_index"])


def simulate(seed: int, folder: Path) -> list[str]:
    """Carry out the schedule of a seed; what happened in it. Raises AssertionError if the promise was broken."""
    simulation = DiskSimulation(folder, random.Random(seed))
    try:
        asyncio.run(simulation.run())
    except BaseException as error:
        error.add_note(f"seed {seed}: {', '.join(simulation.log)}")
        raise
    return simulation.log


if __name__ == "__main__":
    carry_out_seeds(simulate)
