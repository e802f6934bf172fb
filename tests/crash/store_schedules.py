"""Schedules against the real store code: kills at any byte, failed disks, interfering programs, two writers, resumes.

A seed decides everything, so a failing schedule can be repeated: `python -m tests.crash.store_schedules SEED`. After
each one the promise is checked: requested = scored + failed + owed, no rollout twice, nothing invented, and no record
lost that was on disk, unless another program took it from there.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gymnast.errors import UserError
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.prepare import prepare_run
from gymnast.rollouts.run_store import FileRunStore
from gymnast.store.append import AppendLog
from gymnast.store.lock import RunLock
from gymnast.store.manifest import RunState
from gymnast.store.paths import RunPaths
from gymnast.types.task import RolloutKey
from gymnast.types.totals import RolloutFacts
from tests.crash.seeds import carry_out_seeds
from tests.helpers.jsonl import read_jsonl, write_jsonl

MAX_ATTEMPTS = 3


@dataclass
class Simulation:
    """A run below a folder, and what is known of it."""

    folder: Path
    chance: random.Random
    written: dict[RolloutKey, set[int]] = field(default_factory=dict)
    """The nonces of all records ever passed to a store, by rollout."""
    durable: dict[RolloutKey, int] = field(default_factory=dict)
    """Records that a commit has put on disk."""
    log: list[str] = field(default_factory=list)
    nonce: int = 0

    def __post_init__(self) -> None:
        self.paths = RunPaths(self.folder / "x.jsonl")
        tasks, repeats = self.chance.randint(1, 4), self.chance.randint(1, 3)
        params = {"input": "q"}
        rows = [{"responses_create_params": params, "agent_ref": {"name": "a"}, "n": n} for n in range(tasks)]
        source = write_jsonl(self.folder / "in.jsonl", rows)
        plan = PlanOptions(repeats=repeats)
        self.options = RunOptions(
            source=source, output=self.paths.output, plan=plan, existing="resume", aggregate=False
        )
        self.requested = tasks * repeats

    async def run(self) -> None:
        for _ in range(self.chance.randint(1, 5)):
            await self._invoke()
            self._interfere_between()
        await self._invoke(to_the_end=True)
        self._audit()

    # --- one invocation ----------------------------------------------------------------------------------------------

    async def _invoke(self, *, to_the_end: bool = False) -> None:
        with RunLock(self.paths.lock):
            prepared = prepare_run(self.options, ["a"], lambda _: [])
            store = FileRunStore(self.paths, prepared.manifest, max_attempts=MAX_ATTEMPTS)
            await store.__aenter__()
            self._forget_lost()
            try:
                for key, _ in list(store.owed_inputs()):
                    if not to_the_end and await self._disturb(store):
                        return
                    self._settle(store, key, surely=to_the_end)
                await store.save(RunState.COMPLETE if store.counts().owed == 0 else RunState.INCOMPLETE)
                self._note_durable(store)
                scored = store.counts().scored
                assert len(self._readable_keys(self.paths.output)) == scored, "what was saved is not in the file"
                assert not to_the_end or store.counts().owed == 0, store.counts()
            except UserError as error:
                self.log.append(f"refused: {error.what}")
                if to_the_end or "another program" not in error.what:
                    raise
            finally:
                await _leave(store)
            counts = store.counts()
            assert counts.requested == counts.scored + sum(counts.failed.values()) + counts.owed == self.requested

    def _settle(self, store: FileRunStore, key: RolloutKey, *, surely: bool) -> None:
        self.nonce += 1
        action = "score" if surely or self.chance.random() < 0.7 else self.chance.choice(["fail", "give up"])
        identity = {"_ng_task_index": key.task, "_ng_rollout_index": key.rollout}
        if action == "score":
            self.written.setdefault(key, set()).add(self.nonce)
            padding = "x" * self.chance.choice([0, 10, 5000])
            line = orjson.dumps({"reward": 1.0, "nonce": self.nonce, "padding": padding, **identity})
            store.record_scored(key, line, RolloutFacts("a", 1.0))
        else:
            final = action == "give up" or store.attempts_of(key) + 1 >= MAX_ATTEMPTS
            failure = {"kind": "model_error", "run_id": store.run_id}
            terminal = {"_ng_failure_terminal": True} if final else {}
            store.record_failed(
                key, orjson.dumps({"failure": failure, **terminal, **identity}), "model_error", "a", final=final
            )

    async def _disturb(self, store: FileRunStore) -> bool:
        """Something happens, or nothing. True if the invocation was killed."""
        event = self.chance.choices(
            ["nothing", "commit", "save", "kill", "second writer", "replace", "cut", "foreign line", "remove"],
            [30, 10, 4, 3, 2, 1, 1, 1, 1],
        )[0]
        if event != "nothing":
            self.log.append(event)
        if event == "commit":
            await store._scored_log.commit()
            self._note_durable(store)
        elif event == "save":
            await store.save(RunState.RUNNING)
            self._note_durable(store)
        elif event == "kill":
            _tear(store, self.chance)
        elif event == "second writer":
            if _is_intact(store._scored_log):  # otherwise the name is another file's
                await self._try_second_writer()
        elif self.paths.output.exists():
            self._interfere(event)
        return event == "kill"

    def _interfere(self, event: str) -> None:
        """Another program touches the file while the run writes it."""
        output = self.paths.output
        if event == "replace":
            copy = output.with_name("copy")
            copy.write_bytes(output.read_bytes())
            copy.replace(output)
        elif event == "cut":
            os.truncate(output, self.chance.randint(0, output.stat().st_size))
            self._forget_lost()
        elif event == "foreign line":
            self._add_line(output)
        elif event == "remove":
            output.unlink()
            self.durable.clear()

    async def _try_second_writer(self) -> None:
        alias = self.folder / "alias.jsonl"
        alias.unlink(missing_ok=True)
        alias.symlink_to(self.paths.output)
        try:
            async with AppendLog(alias):
                pass
        except UserError as error:
            if "another process" in error.what:
                return
            raise
        raise AssertionError("a second writer was let in")

    # --- other programs ----------------------------------------------------------------------------------------------

    def _interfere_between(self) -> None:
        event = self.chance.choices(
            ["nothing", "foreign line", "same line twice", "cut", "lost manifest", "stale lock", "restore"],
            [10, 2, 2, 2, 1, 1, 3],
        )[0]
        if event != "nothing":
            self.log.append(f"between: {event}")
        output = self.paths.output
        saved = output.with_name(output.name + ".saved")
        if event == "restore" and saved.exists():
            saved.replace(output)
        elif not output.exists():
            return
        elif event == "foreign line":
            self._add_line(output)
        elif event == "same line twice":
            lines = [line for line in output.read_bytes().splitlines(keepends=True) if b'"nonce":-1' not in line]
            if lines:
                with output.open("ab") as stream:
                    stream.write(self.chance.choice(lines))
        elif event == "cut":
            os.truncate(output, self.chance.randint(0, output.stat().st_size))
        elif event == "lost manifest" and not any(record["nonce"] < 0 for record in _records(output)):
            self.paths.manifest.unlink(missing_ok=True)  # with foreign records, such a run is refused
        elif event == "stale lock":
            self.paths.lock.write_text("pid 1 on elsewhere\n")

    def _add_line(self, output: Path) -> None:
        foreign = orjson.dumps({"reward": 9.0, "nonce": -1, "_ng_task_index": 99, "_ng_rollout_index": 0})
        damaged = self.chance.choice([b"not json", b"{}", b'{"reward": 1.0'])
        # A run most of whose records are foreign is refused: then the files belong to different runs.
        known, unknown = len(self._readable_keys(output)), sum(record["nonce"] < 0 for record in _records(output))
        line = foreign if known > unknown else damaged
        data = output.read_bytes()
        if data and not data.endswith(b"\n"):
            line = b"\n" + line
        with output.open("ab") as stream:
            stream.write(line + b"\n")

    # --- the promise -------------------------------------------------------------------------------------------------

    def _note_durable(self, store: FileRunStore) -> None:
        if store._scored_log.error is None and _is_intact(store._scored_log):
            for record in _records(self.paths.output):
                if record["nonce"] > 0:
                    self.durable[_key(record)] = record["nonce"]

    def _readable_keys(self, output: Path) -> set[RolloutKey]:
        return {_key(record) for record in _records(output) if record["nonce"] > 0}

    def _forget_lost(self) -> None:
        """What other programs removed from the file is not lost by us."""
        there = {record["nonce"] for record in _records(self.paths.output)}
        self.durable = {key: nonce for key, nonce in self.durable.items() if nonce in there}

    def _audit(self) -> None:
        records = read_jsonl(self.paths.output)
        keys = [_key(record) for record in records]
        assert len(keys) == len(set(keys)), "a rollout twice"
        assert len(records) <= self.requested
        for record in records:
            assert record["nonce"] in self.written[_key(record)], "an invented record"
        found = {_key(record): record["nonce"] for record in records}
        for key, nonce in self.durable.items():
            assert found.get(key) == nonce, f"the record of {key} was lost or replaced"
        assert self.paths.done.exists()


def _key(record: dict[str, Any]) -> RolloutKey:
    return RolloutKey(record["_ng_task_index"], record["_ng_rollout_index"])


def _records(path: Path) -> list[dict[str, Any]]:
    records = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict) and "nonce" in record and "_ng_task_index" in record:
            records.append(record)
    return records


def _is_intact(log: AppendLog) -> bool:
    try:
        there = log.path.stat()
    except FileNotFoundError:
        return False
    own = os.fstat(log._fd)
    return (there.st_ino, there.st_size) == (own.st_ino, own.st_size)


def _tear(store: FileRunStore, chance: random.Random) -> None:
    """A kill: of what was not committed yet, any first part has reached the file."""
    for log in (store._scored_log, store._failures_log):
        if log._pending and chance.random() < 0.7:
            os.write(log._fd, log._pending[: chance.randint(0, len(log._pending))])
        log._pending = bytearray()
        log._reported = True  # nothing is written any more


async def _leave(store: FileRunStore) -> None:
    try:
        await store.__aexit__(None, None, None)
    except UserError as error:
        if "another program" not in error.what:
            raise


def simulate(seed: int, folder: Path) -> list[str]:
    """Carry out the schedule of a seed; what happened in it. Raises AssertionError if the promise was broken."""
    simulation = Simulation(folder, random.Random(seed))
    try:
        asyncio.run(simulation.run())
    except BaseException as error:
        error.add_note(f"seed {seed}: {', '.join(simulation.log)}")
        raise
    return simulation.log


if __name__ == "__main__":
    carry_out_seeds(simulate)
