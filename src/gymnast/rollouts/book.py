"""The book of a run: what is settled and what is owed. Each outcome is kept once.

A rollout is settled when it is scored or has failed for good. `RunBook` keeps it in the run's files; opening one
repairs whatever a crash left. `MemoryBook` keeps the account only: for rows whose results somebody takes as they come.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import msgspec
import orjson

from gymnast.errors import DataError, UserError
from gymnast.rollouts.record import Record
from gymnast.store.append import AppendLog
from gymnast.store.keys import key_of_line
from gymnast.store.keyset import KeySet
from gymnast.store.lines import numbered_lines
from gymnast.store.manifest import Counts, Manifest, RunState, write_manifest
from gymnast.store.repair import open_repaired
from gymnast.store.replacing import write_replacing
from gymnast.types.failure import BAD_ROW
from gymnast.types.task import FAILURE_CLASS, FAILURE_TERMINAL, INPUT_LINE, RolloutKey
from gymnast.types.usage import Account, usage_of_line

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence
    from types import TracebackType

    from gymnast.store.paths import RunPaths
    from gymnast.types.usage import ModelUsage


@dataclass(slots=True)
class Settled:
    """What the files of a run say of its rollouts."""

    scored: KeySet = field(default_factory=KeySet)
    failed: dict[int, str] = field(default_factory=dict)
    """Failed for good: the kind."""
    attempts: dict[int, int] = field(default_factory=dict)
    """Failed attempts of rollouts that are not scored."""
    failed_kinds: Counter[str] = field(default_factory=Counter)

    def fail(self, packed: int, kind: str) -> None:
        """A rollout has failed for good."""
        self.unfail(packed)
        self.failed[packed] = kind
        self.failed_kinds[kind] += 1

    def unfail(self, packed: int) -> None:
        """A rollout is owed again."""
        kind = self.failed.pop(packed, None)
        if kind is not None:
            self.failed_kinds[kind] -= 1

    def forget_bad_rows(self, still_bad: Container[int]) -> None:
        """Bad rows have negative keys; those that are bad no longer are not failures any more."""
        for packed in [packed for packed in self.failed if packed < 0 and packed not in still_bad]:
            self.unfail(packed)

    def __contains__(self, key: RolloutKey) -> bool:
        packed = key.packed
        return packed in self.scored or packed in self.failed


class Answer(Enum):
    """What a book may say instead of giving a row."""

    LATER = "later"
    """Nothing just now; ask again."""


LATER: Final = Answer.LATER
Owed = tuple[RolloutKey, bytes] | Literal[Answer.LATER]

Take = Callable[[Record], None]
"""Told of each outcome that is kept for good."""


class Book(ABC):
    """The account that the engine keeps: every requested rollout is scored, failed for good, or owed."""

    def __init__(self, run_id: str, name: str, before: Counts, take: Take | None) -> None:
        self.run_id = run_id
        self.name = name
        self.requested = before.requested
        self.settled = Settled()
        self.attempts_made = before.attempts
        self.retries_made = before.retries
        self.spent = Account()
        """What the model calls of all attempts used."""
        self._take = take or (lambda _: None)

    @abstractmethod
    def owed(self) -> Iterator[Owed]:
        """The inputs that are not settled, in plan order. LATER where more may come."""

    def spend(self, usage: ModelUsage | None) -> None:
        """An attempt ended, and this is what it used."""
        if usage is not None:
            self.spent.merge(usage)

    def attempts_of(self, key: RolloutKey) -> int:
        """Failed attempts of a rollout so far."""
        return self.settled.attempts.get(key.packed, 0)

    def counts(self) -> Counts:
        """How far the run is."""
        scored = len(self.settled.scored)
        owed = self.requested - scored - len(self.settled.failed)
        failed = dict(+self.settled.failed_kinds)
        return Counts(self.requested, scored, failed, owed, self.attempts_made, self.retries_made)

    def keep_scored(self, key: RolloutKey, line: bytes, *, persisted: bool = True) -> None:
        """A rollout was scored. Keeping a second outcome of it would be a bug of ours."""
        packed = key.packed
        assert packed not in self.settled.scored, f"{key} was scored twice"
        if persisted:
            self.write_scored(line)
        self.settled.scored.add(packed)
        self.settled.attempts.pop(packed, None)
        self.attempts_made += 1
        self._take(Record(key, line))

    def keep_failed(self, key: RolloutKey, line: bytes, kind: str, *, final: bool) -> None:
        """An attempt failed."""
        packed = key.packed
        self.write_failed(line)
        self.settled.attempts[packed] = self.settled.attempts.get(packed, 0) + 1
        self.attempts_made += 1
        if final:
            self.settled.fail(packed, kind)
            self._take(Record(key, line, kind))

    def write_scored(self, line: bytes) -> None:
        """Make a scored record last."""

    def write_failed(self, line: bytes) -> None:
        """Make the record of a failed attempt last."""

    async def save(self, state: RunState, note: str | None = None) -> None:
        """Make everything last that was kept so far."""


class MemoryBook(Book):
    """Rows of a caller, who takes each outcome as it comes. Their keys are their places in the list."""

    def __init__(self, run_id: str, lines: Sequence[bytes], take: Take) -> None:
        super().__init__(run_id, "rows", Counts(requested=len(lines), owed=len(lines)), take)
        self._lines = lines

    def owed(self) -> Iterator[tuple[RolloutKey, bytes]]:
        for place, line in enumerate(self._lines):
            yield RolloutKey(place, 0), line


class RunBook(Book):
    """Use as `async with RunBook(…) as book`, holding the run's lock."""

    def __init__(
        self,
        paths: RunPaths,
        manifest: Manifest,
        *,
        max_attempts: int,
        retry_failed: bool | Container[str] = False,
        only: Container[int] | None = None,
        take: Take | None = None,
    ) -> None:
        """`retry_failed`: try rollouts again that failed for good; all, or those of some kinds. `only`: packed keys."""
        super().__init__(manifest.run_id, str(paths.output), manifest.counts, take)
        self.spend(manifest.spent)
        self.paths = paths
        self.manifest = manifest
        self.notes: list[str] = []
        self._max_attempts = max_attempts
        self._retry_failed = retry_failed
        self._only = only
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
            if key not in self.settled and (self._only is None or key.packed in self._only):
                yield key, line

    # --- writing -----------------------------------------------------------------------------------------------------

    def write_scored(self, line: bytes) -> None:
        self._scored_log.append(line)

    def write_failed(self, line: bytes) -> None:
        self._failures_log.append(line)

    async def save(self, state: RunState, note: str | None = None) -> None:
        """Commit everything and say in the manifest how the run stands. While it runs, the latter may fail."""
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
            spent=self.spent.usage(),
            updated_at=time.time(),
            note=note,
            invocations=[*self.manifest.invocations[:-1], last],
        )
        try:
            write_manifest(self.paths.manifest, self.manifest)
            if state is RunState.COMPLETE:
                write_replacing(self.paths.done, msgspec.json.encode(self.manifest.counts) + b"\n")
        except OSError as error:
            if state is not RunState.RUNNING:
                raise UserError(
                    f"cannot write how the run ended: {error.strerror or error}",
                    where=str(self.paths.manifest),
                    next="every record is kept; free space, then run the same command with --resume",
                ) from error

    # --- opening -----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        scored = self.settled.scored
        found = open_repaired(self.paths.output, lambda key, _: scored.add(key.packed), one_line_a_key=True)
        self._note_repair(self.paths.output.name, found.damaged, len(found.duplicates))
        lines = found.lines
        found = open_repaired(self.paths.failures, self._take_failure, one_line_a_key=False)
        self._note_repair(self.paths.failures.name, found.damaged, 0)
        # A crash leaves the manifest behind the files.
        if lines + found.lines > self.attempts_made:
            self.attempts_made = lines + found.lines
            self._count_spending_again()

    def _count_spending_again(self) -> None:
        """What the records say was used, if that is more than the manifest knows of."""
        again = Account()
        for path in (self.paths.output, self.paths.failures):
            for _, line in numbered_lines(path) if path.exists() else ():
                usage = usage_of_line(line)
                if usage is not None:
                    again.merge(usage)
        if again.calls > self.spent.calls:
            self.spent = again

    def _take_failure(self, key: RolloutKey, line: bytes) -> None:
        packed = key.packed
        record: dict[str, Any] = orjson.loads(line)
        failure = record.get("failure") or {}
        run_id = failure.get("run_id")
        if packed in self.settled.scored or (run_id is not None and run_id != self.manifest.run_id):
            return  # settled otherwise, or left by another run: neither may use up this one's attempts
        attempts = self.settled.attempts.get(packed, 0) + 1
        kind = str(failure.get("kind") or record.get(FAILURE_CLASS) or "unknown")
        if kind == BAD_ROW:
            self.settled.fail(RolloutKey(-int(record.get(INPUT_LINE) or 0), key.rollout).packed, kind)
            return
        if self._is_tried_again(kind):
            attempts = 0
            self.settled.unfail(packed)
        elif record.get(FAILURE_TERMINAL) or attempts >= self._max_attempts:
            self.settled.fail(packed, kind)
        self.settled.attempts[packed] = attempts

    def _is_tried_again(self, kind: str) -> bool:
        again = self._retry_failed
        return again if isinstance(again, bool) else kind in again

    def _note_repair(self, name: str, damaged: int, duplicates: int) -> None:
        if damaged:
            self.notes.append(f"{name}: {damaged} damaged lines were moved to {name}.damaged")
        if duplicates:
            self.notes.append(f"{name}: {duplicates} second records of the same rollouts were removed")
