"""The run store: which rollouts are settled and which are owed, and the files that say so.

- Every requested rollout is scored, permanently failed, or owed; scored and failed ones are settled.
- A rollout is scored at most once. A failed attempt is recorded each time; `max_attempts` of them, or one that a retry
  cannot fix, settle the rollout.
- A record is accepted before it counts; `save` returns once everything accepted is on disk.
- Bad rows have negative keys, so they never collide with planned rollouts.

`FileRunStore` keeps the run's files and repairs what a crash left when it opens them. The files are the truth: the
manifest's counts may lag behind. `MemoryRunStore` has no files: its caller takes each record as it comes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

import msgspec
import orjson

from gymnast.errors import UserError
from gymnast.rollouts.record import Record
from gymnast.rollouts.tally import Tally
from gymnast.store.append import AppendLog
from gymnast.store.atomic import atomic_write
from gymnast.store.keys import KeySet, require_key
from gymnast.store.lines import numbered_lines
from gymnast.store.manifest import Counts, Manifest, RunState, write_manifest
from gymnast.store.repair import repair_file, scan_file
from gymnast.types.failure import FailureKind
from gymnast.types.task import FAILURE_CLASS, FAILURE_TERMINAL, INPUT_LINE, NOT_ATTEMPTS, RolloutKey, agent_name_of
from gymnast.types.usage import UsageCounter, usage_of_line

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from gymnast.store.paths import RunPaths
    from gymnast.store.repair import RepairResult
    from gymnast.types.totals import AgentTotals, RolloutFacts
    from gymnast.types.usage import ModelUsage


class FailedRollout(NamedTuple):
    """A permanently failed rollout."""

    kind: str
    agent: str


@dataclass(slots=True)
class SettledRollouts:
    """The settled rollouts of a run, and the attempts of the others, by packed key."""

    scored: KeySet = field(default_factory=KeySet)
    failed: dict[int, FailedRollout] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    """Failed attempts of rollouts that are not scored."""
    earlier: dict[int, int] = field(default_factory=dict)
    """Those from before a rollout was retried on request: they have numbers, and no longer count."""
    failed_kinds: Counter[str] = field(default_factory=Counter)
    tally: Tally = field(default_factory=Tally)
    """The totals of the whole run."""

    def fail(self, packed: int, kind: str, agent: str) -> None:
        self.unfail(packed)
        self.failed[packed] = FailedRollout(kind, agent)
        self.failed_kinds[kind] += 1
        self.tally.fail(agent, kind)

    def unfail(self, packed: int) -> None:
        """The rollout is owed again."""
        failed = self.failed.pop(packed, None)
        if failed is not None:
            self.failed_kinds[failed.kind] -= 1
            self.tally.unfail(failed.agent, failed.kind)

    def forget_bad_rows(self, still_bad: Container[int]) -> None:
        """Bad rows that were fixed are no longer failures."""
        for packed in [packed for packed in self.failed if packed < 0 and packed not in still_bad]:
            self.unfail(packed)

    def __contains__(self, key: RolloutKey) -> bool:
        packed = key.packed
        return packed in self.scored or packed in self.failed


class NoRow(Enum):
    """Why a store has no row to give."""

    NOT_YET = "later"
    """None now; ask again later."""


NOT_YET: Final = NoRow.NOT_YET
Owed = tuple[RolloutKey, bytes] | Literal[NoRow.NOT_YET]

Take = Callable[[Record], None]
"""Receives each final record."""


class RunStore(ABC):
    """The state of a run's rollouts, without files; the base of all run stores."""

    def __init__(self, run_id: str, name: str, before: Counts, take: Take | None) -> None:
        self.run_id = run_id
        self.name = name
        self.requested = before.requested
        self.settled = SettledRollouts()
        self.attempts_made = before.attempts
        self.retries_made = before.retries
        self.spent = UsageCounter()
        """What the model calls of all attempts used."""
        self._take = take

    @abstractmethod
    def owed_inputs(self) -> Iterator[Owed]:
        """The inputs that are not settled, in plan order. `NOT_YET` where more may come later."""

    def add_usage(self, usage: ModelUsage | None) -> None:
        """Add what an attempt used."""
        if usage is not None:
            self.spent.merge(usage)

    def attempts_of(self, key: RolloutKey) -> int:
        """Failed attempts of a rollout so far."""
        return self.settled.attempts.get(key.packed, 0)

    def earlier_attempts_of(self, key: RolloutKey) -> int:
        """Failed attempts of a rollout that no longer count, because it was retried on request."""
        return self.settled.earlier.get(key.packed, 0)

    def counts(self) -> Counts:
        scored = len(self.settled.scored)
        owed = self.requested - scored - len(self.settled.failed)
        failed = dict(+self.settled.failed_kinds)
        return Counts(self.requested, scored, failed, owed, self.attempts_made, self.retries_made)

    def totals(self) -> dict[str, AgentTotals]:
        """The totals of each agent's rollouts."""
        return self.settled.tally.totals()

    def record_scored(self, key: RolloutKey, line: bytes, facts: RolloutFacts, *, persisted: bool = True) -> None:
        """Record a scored rollout. It must not have been scored before."""
        packed = key.packed
        assert packed not in self.settled.scored, f"{key} was scored twice"
        if persisted:
            self.write_scored(line)
        self.settled.scored.add(packed)
        self.settled.attempts.pop(packed, None)
        self.settled.tally.add_scored(facts)
        self.attempts_made += 1
        self.deliver(key, line)

    def record_failed(self, key: RolloutKey, line: bytes, kind: str, agent: str, *, final: bool) -> None:
        """Record a failed attempt; `final` if the rollout has failed permanently."""
        packed = key.packed
        self.write_failed(line)
        self.settled.attempts[packed] = self.settled.attempts.get(packed, 0) + 1
        self.settled.tally.add_failure(agent, kind)
        self.attempts_made += 1
        if final:
            self.settled.fail(packed, kind, agent)
            self.deliver(key, line, kind)

    def deliver(self, key: RolloutKey, line: bytes, failure_kind: str | None = None) -> None:
        """Give a final record to who takes them."""
        if self._take is not None:
            self._take(Record(key, line, failure_kind))

    def write_scored(self, line: bytes) -> None:
        """Persist a scored record."""

    def write_failed(self, line: bytes) -> None:
        """Persist the record of a failed attempt."""

    async def save(self, state: RunState, note: str | None = None) -> None:
        """Persist everything recorded so far."""


class MemoryRunStore(RunStore):
    """Rows of a caller, who takes each record as it comes. A row's key is its position in the list."""

    def __init__(self, run_id: str, lines: Sequence[bytes], take: Take) -> None:
        super().__init__(run_id, "rows", Counts(requested=len(lines), owed=len(lines)), take)
        self._lines = lines

    def owed_inputs(self) -> Iterator[tuple[RolloutKey, bytes]]:
        for position, line in enumerate(self._lines):
            yield RolloutKey(position, 0), line


class FileRunStore(RunStore):
    """The files of a run. Use as `async with FileRunStore(…) as store`, holding the run's lock."""

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
        """`retry_failed`: retry permanently failed rollouts, all or those of some kinds. `only`: packed keys to run."""
        super().__init__(manifest.run_id, str(paths.output), manifest.counts, take)
        self.add_usage(manifest.spent)
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
        try:
            self._load()
            await self._stack.enter_async_context(self._scored_log)
            await self._stack.enter_async_context(self._failures_log)
        except OSError as error:
            await self._stack.aclose()
            raise UserError(
                f"cannot open the run's files: {error.strerror or error}",
                where=str(error.filename or self.paths.output),
                next="nothing is lost; fix the folder or free some space, then run again with --resume",
            ) from error
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # --- reading -----------------------------------------------------------------------------------------------------

    def owed_inputs(self) -> Iterator[tuple[RolloutKey, bytes]]:
        """The materialized inputs that are not settled, in plan order."""
        path = self.paths.materialized_inputs
        for number, line in numbered_lines(path):
            key = require_key(line, path, number)
            if key not in self.settled and (self._only is None or key.packed in self._only):
                yield key, line

    # --- writing -----------------------------------------------------------------------------------------------------

    def write_scored(self, line: bytes) -> None:
        self._scored_log.append(line)

    def write_failed(self, line: bytes) -> None:
        self._failures_log.append(line)

    async def save(self, state: RunState, note: str | None = None) -> None:
        """Commit all records and write the manifest. While the run is running, writing the manifest may fail."""
        for log in (self._scored_log, self._failures_log):
            await log.commit()
            await log.check()
        last = msgspec.structs.replace(
            self.manifest.invocations[-1],
            ended_at=None if state is RunState.RUNNING else time.time(),
            ended_as=None if state is RunState.RUNNING else state,
        )
        self.manifest = msgspec.structs.replace(
            self.manifest,
            state=state,
            counts=self.counts(),
            agents=self.totals(),
            spent=self.spent.usage(),
            updated_at=time.time(),
            note=note,
            invocations=[*self.manifest.invocations[:-1], last],
        )
        try:
            write_manifest(self.paths.manifest, self.manifest)
            if state is RunState.COMPLETE:
                atomic_write(self.paths.done, msgspec.json.encode(self.manifest.counts) + b"\n")
        except OSError as error:
            if state is not RunState.RUNNING:
                raise UserError(
                    f"cannot write how the run ended: {error.strerror or error}",
                    where=str(self.paths.manifest),
                    next="all records are safe; free some space, then run the same command with --resume",
                ) from error

    def recount(self) -> Manifest:
        """The manifest with what the files contain, for a run whose process died. Changes nothing on disk."""
        self._load(scan_file)
        return msgspec.structs.replace(
            self.manifest, counts=self.counts(), agents=self.totals(), spent=self.spent.usage()
        )

    # --- opening -----------------------------------------------------------------------------------------------------

    def _load(self, read_file: Callable[..., RepairResult] = repair_file) -> None:
        planned = self._planned_keys() if self.paths.output.exists() else None
        output = read_file(self.paths.output, self._load_scored, unique_keys=True, planned=planned)
        self._note_repair(self.paths.output.name, output.damaged, len(output.duplicates))
        if output.unplanned:
            name = self.paths.output.name
            self.notes.append(f"{name}: {output.unplanned} records of other runs were moved to {name}.damaged")
        failures = read_file(self.paths.failures, self._load_failure, unique_keys=False)
        self._note_repair(self.paths.failures.name, failures.damaged, 0)
        self.settled.tally.set_durations(self.manifest.agents)
        if output.lines + failures.lines > self.attempts_made:  # a crash left the manifest behind the files
            self.attempts_made = output.lines + failures.lines
            self._recount_usage()

    def _planned_keys(self) -> KeySet:
        keys = KeySet()
        path = self.paths.materialized_inputs
        for number, line in numbered_lines(path):
            keys.add(require_key(line, path, number).packed)
        return keys

    def _recount_usage(self) -> None:
        """Use the usage in the records if it exceeds the manifest's."""
        recounted = UsageCounter()
        for path in (self.paths.output, self.paths.failures):
            for _, line in numbered_lines(path) if path.exists() else ():
                usage = usage_of_line(line)
                if usage is not None:
                    recounted.merge(usage)
        if recounted.calls > self.spent.calls:
            self.spent = recounted

    def _load_scored(self, key: RolloutKey, _: bytes, facts: RolloutFacts | None) -> None:
        assert facts is not None
        self.settled.scored.add(key.packed)
        self.settled.tally.add_scored(facts)

    def _load_failure(self, key: RolloutKey, line: bytes, _: object) -> None:
        packed = key.packed
        record: dict[str, Any] = orjson.loads(line)
        failure = record.get("failure") or {}
        run_id = failure.get("run_id")
        if run_id is not None and run_id != self.manifest.run_id:
            return  # left by another run: it must not use up attempts of this one
        if any(record.get(mark) for mark in NOT_ATTEMPTS):
            return
        kind = str(failure.get("kind") or record.get(FAILURE_CLASS) or FailureKind.UNKNOWN.value)
        agent = agent_name_of(record) or ""
        self.settled.tally.add_failure(agent, kind)
        if packed in self.settled.scored:
            return
        attempts = self.settled.attempts.get(packed, 0) + 1
        if kind == FailureKind.BAD_ROW:
            self.settled.fail(RolloutKey(-int(record.get(INPUT_LINE) or 0), key.rollout).packed, kind, agent)
            return
        if self._is_retried(kind):
            self.settled.earlier[packed] = self.settled.earlier.get(packed, 0) + attempts
            attempts = 0
            self.settled.unfail(packed)
        elif record.get(FAILURE_TERMINAL) or attempts >= self._max_attempts:
            self.settled.fail(packed, kind, agent)
        self.settled.attempts[packed] = attempts

    def _is_retried(self, kind: str) -> bool:
        retry = self._retry_failed
        return retry if isinstance(retry, bool) else kind in retry

    def _note_repair(self, name: str, damaged: int, duplicates: int) -> None:
        if damaged:
            self.notes.append(f"{name}: {damaged} damaged lines were moved to {name}.damaged")
        if duplicates:
            self.notes.append(f"{name}: {duplicates} duplicate records of rollouts were removed")
