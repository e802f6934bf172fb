"""The book of a run: its files open for writing, what is settled and what is owed. Each outcome is kept once.

A rollout is settled when it is scored or has failed for good. Opening the book repairs whatever a crash left.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import msgspec
import orjson

from gymnast.errors import DataError
from gymnast.store.append import AppendLog
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.store.manifest import Counts, Manifest, RunState, write_manifest, write_replacing
from gymnast.store.repair import open_repaired
from gymnast.types.task import FAILURE_CLASS, FAILURE_TERMINAL, RolloutKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from gymnast.store.paths import RunPaths


@dataclass(slots=True)
class Settled:
    """What the files of a run say of its rollouts."""

    scored: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    """Failed for good: the kind."""
    attempts: dict[int, int] = field(default_factory=dict)
    """Failed attempts of rollouts that are not scored."""
    failed_kinds: Counter[str] = field(default_factory=Counter)

    def fail(self, packed: int, kind: str) -> None:
        """A rollout has failed for good."""
        self.failed[packed] = kind
        self.failed_kinds[kind] += 1

    def __contains__(self, key: RolloutKey) -> bool:
        packed = key.packed
        return packed in self.scored or packed in self.failed


class RunBook:
    """Use as `async with RunBook(…) as book`, holding the run's lock."""

    def __init__(self, paths: RunPaths, manifest: Manifest, *, max_attempts: int, retry_failed: bool = False) -> None:
        self.paths = paths
        self.manifest = manifest
        self.requested = manifest.counts.requested
        self.settled = Settled()
        self.attempts_made = manifest.counts.attempts
        self.retries_made = manifest.counts.retries
        self.notes: list[str] = []
        self._max_attempts = max_attempts
        self._retry_failed = retry_failed
        self._stack = AsyncExitStack()
        self._scored_log = AppendLog(paths.output)
        self._failures_log = AppendLog(paths.failures)

    async def __aenter__(self) -> Self:
        self._load()
        await self._stack.enter_async_context(self._scored_log)
        await self._stack.enter_async_context(self._failures_log)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # --- reading -----------------------------------------------------------------------------------------------------

    def owed(self) -> Iterator[tuple[RolloutKey, bytes]]:
        """The materialized inputs that are not settled, in plan order."""
        path = self.paths.materialized_inputs
        for number, line in numbered_lines(path):
            key = key_of_line(line)
            if key is None:
                raise DataError("a materialized input has no task and rollout index", where=f"{path} line {number}")
            if key not in self.settled:
                yield key, line

    def attempts_of(self, key: RolloutKey) -> int:
        """Failed attempts of a rollout so far."""
        return self.settled.attempts.get(key.packed, 0)

    def counts(self) -> Counts:
        """How far the run is."""
        scored = len(self.settled.scored)
        owed = self.requested - scored - len(self.settled.failed)
        failed = dict(self.settled.failed_kinds)
        return Counts(self.requested, scored, failed, owed, self.attempts_made, self.retries_made)

    # --- writing -----------------------------------------------------------------------------------------------------

    def keep_scored(self, key: RolloutKey, line: bytes, *, persisted: bool = True) -> None:
        """A rollout was scored. Keeping a second outcome of it would be a bug of ours."""
        packed = key.packed
        assert packed not in self.settled.scored, f"{key} was scored twice"
        if persisted:
            self._scored_log.append(line)
        self.settled.scored.add(packed)
        self.settled.attempts.pop(packed, None)
        self.attempts_made += 1

    def keep_failed(self, key: RolloutKey, line: bytes, kind: str, *, final: bool) -> None:
        """An attempt failed."""
        packed = key.packed
        self._failures_log.append(line)
        self.settled.attempts[packed] = self.settled.attempts.get(packed, 0) + 1
        if final:
            self.settled.fail(packed, kind)
        self.attempts_made += 1

    async def save(self, state: RunState, note: str | None = None) -> None:
        """Commit everything and say in the manifest how the run stands. A disk that is full may keep the latter."""
        await self._scored_log.commit()
        await self._failures_log.commit()
        last = msgspec.structs.replace(
            self.manifest.invocations[-1],
            ended_at=None if state is RunState.RUNNING else time.time(),
            ended_as=None if state is RunState.RUNNING else state,
        )
        self.manifest = msgspec.structs.replace(
            self.manifest,
            state=state,
            counts=self.counts(),
            updated_at=time.time(),
            note=note,
            invocations=[*self.manifest.invocations[:-1], last],
        )
        with suppress(OSError):
            write_manifest(self.paths.manifest, self.manifest)
            if state is RunState.COMPLETE:
                write_replacing(self.paths.done, msgspec.json.encode(self.manifest.counts) + b"\n")

    # --- opening -----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        scored = self.settled.scored
        found = open_repaired(self.paths.output, lambda key, _: scored.add(key.packed), one_line_a_key=True)
        self._note_repair(self.paths.output.name, found.damaged, len(found.duplicates))
        found = open_repaired(self.paths.failures, self._take_failure, one_line_a_key=False)
        self._note_repair(self.paths.failures.name, found.damaged, 0)

    def _take_failure(self, key: RolloutKey, line: bytes) -> None:
        packed = key.packed
        record: dict[str, Any] = orjson.loads(line)
        failure = record.get("failure") or {}
        run_id = failure.get("run_id")
        if packed in self.settled.scored or (run_id is not None and run_id != self.manifest.run_id):
            return  # settled otherwise, or left by another run: neither may use up this one's attempts
        attempts = self.settled.attempts.get(packed, 0) + 1
        self.settled.attempts[packed] = attempts
        if self._retry_failed:
            self.settled.attempts[packed] = 0
        elif record.get(FAILURE_TERMINAL) or attempts >= self._max_attempts:
            self.settled.fail(packed, str(failure.get("kind") or record.get(FAILURE_CLASS) or "unknown"))

    def _note_repair(self, name: str, damaged: int, duplicates: int) -> None:
        if damaged:
            self.notes.append(f"{name}: {damaged} damaged lines were moved to {name}.damaged")
        if duplicates:
            self.notes.append(f"{name}: {duplicates} second records of the same rollouts were removed")
