"""The runs that a studio shows, kept up to date: rows, indexes, live state. Tells its listeners what changed.

Changes are detected by the sizes and times of files. Indexes are updated one at a time, in a thread; those that were
not used for long leave the memory.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from gymnast.errors import NotFoundError, UserError
from gymnast.profile.groups import by_task
from gymnast.profile.headline import countable_rows
from gymnast.profile.intervals import mean_reward
from gymnast.report.token_text import TokenTexts
from gymnast.store.annotations import annotations_path, read_annotations
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.studio.index_file import index_path
from gymnast.studio.live import LiveHistory, describe_chunks, describe_snapshot, read_snapshot
from gymnast.studio.live import mean_reward as live_mean
from gymnast.studio.run_index import Progress, RunIndex
from gymnast.studio.run_table import LoadedTable, RunTable, load_table, make_view, number_or_none, read_run_plan
from gymnast.studio.runs import RunFacts, read_facts, stamp

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.profile.intervals import Estimate
    from gymnast.profile.plan_index import PlanIndex
    from gymnast.report.run_view import RunView
    from gymnast.rollouts.snapshot import Snapshot
    from gymnast.store.annotations import Annotation
    from gymnast.studio.runs import RunFolders, RunSource
    from gymnast.types.json import JsonObject

Listener = Callable[[str, Any], None]
"""Called with the name of an event and its data."""
_POLL_S: Final = 1.0
_IDLE_POLL_S: Final = 5.0
"""While no page is open."""
_SWITCH_S: Final = 0.0005
"""How long a thread that builds an index keeps others waiting: a search waits after every record that it reads."""
_SCAN_S: Final = 2.0
_MAX_SCAN_SHARE: Final = 0.05
"""Of the time, for looking for new runs in a large tree."""
_MAX_LINES: Final = 800_000
"""Of indexes in memory."""
_SMALL_RUN: Final = 64 << 20
"""Runs up to this size are indexed before anyone opens them, for their intervals in the table."""
_LARGE_PLAN: Final = 16 << 20
"""Materialized inputs that take about a second to read."""
_MAX_LIVE: Final = 30
_MAX_MODELS: Final = 20
_VIEW_SHARE: Final = 0.2
"""Of the time, at most, for the figures of a run that keeps growing."""
_CLOSE_S: Final = 3.0
"""How long closing waits for indexes that are being updated; what is missing is indexed by the next studio."""
FIRST_LINES_S: Final = 0.5
"""How long a page waits for an index, or for its first lines."""


@dataclass(eq=False)
class Entry:
    """One run: what was read from its files, and what was made of that.

    `facts` belong to `stamp`, the sizes and times of the files. `_table`, `_plan`, `_loaded`, `_annotations` and
    `doctor` are the last results, each with what it was made from: it is made again once that has changed. `_view` may
    lag behind a growing run. `live` is None unless the run's process answers.
    """

    source: RunSource
    stamp: tuple[Any, ...] = ()
    facts: RunFacts = field(default_factory=lambda: RunFacts({}))
    estimate: Estimate | None = None
    """Of the mean reward, once the run is indexed."""
    models: list[str] = field(default_factory=list)
    """Those that its records name."""
    counts: JsonObject = field(default_factory=dict)
    """What its records say about a run without a manifest."""
    index: RunIndex | None = None
    update: asyncio.Task[None] | None = None
    used_at: float = 0.0
    live: Snapshot | None = None
    history: LiveHistory = field(default_factory=LiveHistory)
    _table: tuple[Any, RunTable] | None = None
    _plan: tuple[Any, PlanIndex | None] | None = None
    _view: tuple[Any, float, float, RunView, str | None] | None = None
    _loaded: tuple[Any, PlanIndex | None, LoadedTable] | None = None
    _annotations: tuple[Any, dict[tuple[int, int | None], Annotation]] | None = None
    texts: TokenTexts | None = None
    doctor: tuple[Any, JsonObject] | None = None
    tasks: Any = None
    """The table of tasks that was made last."""
    _estimated: tuple[float, float] = (-1e9, 0.0)
    """When the row's figures were made, and how long that took."""

    @property
    def id(self) -> str:
        return self.source.id

    @property
    def is_being_indexed(self) -> bool:
        return self.update is not None and not self.update.done()

    @property
    def progress(self) -> Progress:
        return self.index.progress if self.index is not None else Progress(total_bytes=self.facts.row["size_bytes"])

    def row(self) -> JsonObject:
        """The row of the table of runs."""
        row = {**self.facts.row, "index": describe_progress(self.progress)}
        if self.live is not None:
            now = self.live
            row.update(
                state=now.state,
                is_live=True,
                requested=now.requested,
                scored=now.scored,
                failed=sum(now.failed.values()),
                failures=now.failed,
                owed=now.owed,
                in_flight=now.in_flight,
                cost=now.spent.cost if now.spent.calls else None,
                input_tokens=now.spent.input_tokens,
                output_tokens=now.spent.output_tokens,
            )
            mean = live_mean(now)
            row["mean_reward"] = None if mean is None else {"value": mean, "low": None, "high": None, "n": None}
        if self.estimate is not None and (self.live is None or row["mean_reward"] is not None):
            own = describe_estimate(self.estimate)
            if row["mean_reward"] is not None:  # newer than the interval
                own["value"] = row["mean_reward"]["value"]
            row["mean_reward"] = own
        row["models"] = row["models"] or self.models
        if self.facts.manifest is None and self.facts.chunks is None:
            row.update(self.counts)
        return row

    def annotations(self) -> dict[tuple[int, int | None], Annotation]:
        """The current annotations."""
        path = annotations_path(self.source.paths.output)
        try:
            info = path.stat()
            version: Any = (info.st_size, info.st_mtime_ns)
        except OSError:
            version = None
        if self._annotations is None or self._annotations[0] != version:
            self._annotations = (version, read_annotations(path))
        return self._annotations[1]

    def table(self) -> RunTable:
        """The table of what is indexed now."""
        if self.index is None:
            raise NotFoundError("the run is not indexed")
        snapshot, annotations = self.index.snapshot(), self.annotations()
        version = (snapshot.version, id(annotations))
        if self._table is None or self._table[0] != version:
            labels = {
                (task << 32) | rollout: own.label
                for (task, rollout), own in annotations.items()
                if rollout is not None and own.label is not None
            }
            if self._table is not None and self._table[0][0] == snapshot.version:
                snapshot = self._table[1].snapshot  # what was made of it stays valid
            self._table = (version, RunTable(snapshot, labels))
        return self._table[1]

    def plan(self) -> PlanIndex | None:
        """The requested rollouts, or None if the run has no materialized inputs."""
        path = self.source.paths.materialized_inputs
        try:
            info = path.stat()
            version = (info.st_size, info.st_mtime_ns)
        except OSError:
            return None
        if self._plan is None and info.st_size > _LARGE_PLAN and self.progress.state == "building":
            return None  # the first pages need not wait for it
        if self._plan is None or self._plan[0] != version:
            self._plan = (version, read_run_plan(path))
        return self._plan[1]

    def load(self, table: RunTable) -> LoadedTable:
        """The tasks of a table."""
        plan = self.plan()
        if self._loaded is None or self._loaded[0] is not table.snapshot or self._loaded[1] is not plan:
            self._loaded = (table.snapshot, plan, load_table(table, plan))
        return self._loaded[2]

    def view(self) -> tuple[RunView, str | None]:
        """The run as the report sees it, and what is wrong with it. Of a growing run it may be seconds old."""
        table = self.table()
        version, now = table.snapshot.version, time.monotonic()
        if self._view is not None:
            known, made_at, took_s, view, problem = self._view
            if known == version or (known[0] == version[0] and now - made_at < took_s / _VIEW_SHARE):
                return view, problem
        own = self.load(table)
        view = make_view(table, own, self.source.paths, self.facts.manifest, self.facts.row["name"])
        problem = own.problem
        self._view = (version, now, time.monotonic() - now, view, problem)
        self.estimate, self.models = view.mean_reward, list(view.setup.models)[:_MAX_MODELS]
        self.counts = self._count(table)
        return view, problem

    def estimate_from(self, table: RunTable) -> None:
        """What the row of the run shows of its records."""
        started = time.monotonic()
        records = table.rollout_table
        rewards = replace(records, columns={"reward": records.columns["reward"]})
        self.estimate = mean_reward(by_task(rewards.select(countable_rows(records))))
        self.models = list(table.counts("model"))[:_MAX_MODELS]
        self.counts = self._count(table)
        self._estimated = (time.monotonic(), time.monotonic() - started)

    @property
    def may_estimate(self) -> bool:
        """Whether the row's figures are due: those of a growing run may be some seconds old."""
        made_at, took_s = self._estimated
        return not self.facts.is_live or time.monotonic() - made_at > max(2.0, took_s / _VIEW_SHARE)

    def _count(self, table: RunTable) -> JsonObject:
        failed, plan = table.failure_summary, self.plan()
        return {
            "scored": len(table.rollout_table),
            "failed": len(failed.last_kind),
            "failures": dict(failed.kinds()),
            "tasks": len(np.unique(table.keys >> 32)),
            "requested": len(plan.packed) if plan is not None else None,
            "agents": [name for name in table.rollout_table.agent_names if name][:_MAX_MODELS],
        }

    def token_texts(self) -> TokenTexts:
        if self.texts is None:
            self.texts = TokenTexts(self.facts.manifest)
        return self.texts

    def release(self) -> None:
        """Free the memory of the index; it is loaded again when needed."""
        if self.index is not None:
            self.index.close()
        self.index = self._table = self._view = self._loaded = self.tasks = None


class Library:
    """All runs. Use as `async with`; `poll` is called by a task of its own."""

    def __init__(self, folders: RunFolders, cache: Path | None) -> None:
        self.folders = folders
        self._cache = cache
        self.entries: dict[str, Entry] = {}
        self.left_out = 0
        self.listeners: dict[Listener, tuple[str, ...]] = {}
        """Each with the runs whose live state it wants."""
        self._tasks: list[asyncio.Task[None]] = []
        self._index_slot = asyncio.Semaphore(1)
        self._polling = asyncio.Lock()
        self._scanned_at = -1e9
        self._scan_s = 0.0
        self._polled_at = -1e9
        self._is_closing = False
        self._switch_s = sys.getswitchinterval()
        self._live: set[str] = set()
        """Runs that were live when they were last asked: their end is told once."""

    async def __aenter__(self) -> Self:
        sys.setswitchinterval(_SWITCH_S)
        self._tasks = [asyncio.create_task(self._poll_forever()), asyncio.create_task(self._index_small_runs())]
        return self

    async def __aexit__(self, *_: object) -> None:
        sys.setswitchinterval(self._switch_s)
        self._is_closing = True
        updates = [entry.update for entry in self.entries.values() if entry.update is not None]
        for task in self._tasks:
            task.cancel()
        if waiting := [*self._tasks, *updates]:
            await asyncio.wait(waiting, timeout=_CLOSE_S)
        for entry in self.entries.values():
            entry.release()

    def tell(self, event: str, data: Any) -> None:
        for listener in list(self.listeners):
            listener(event, data)

    def entry(self, run: str) -> Entry:
        """A run by its id."""
        entry = self.entries.get(run)
        if entry is None:
            raise NotFoundError(f"there is no run '{run[:200]}'", next="it may have been removed or renamed")
        entry.used_at = time.monotonic()
        return entry

    # --- changes -----------------------------------------------------------------------------------------------------

    async def _poll_forever(self) -> None:
        while True:
            started = time.monotonic()
            with suppress(OSError, UserError):
                await self.poll()
            pause = _POLL_S if self.listeners else _IDLE_POLL_S
            await asyncio.sleep(max(0.2, pause - (time.monotonic() - started)))

    async def poll(self, *, max_age_s: float = 0.0) -> None:
        """Look for changes, unless someone did within `max_age_s`."""
        async with self._polling:
            if time.monotonic() - self._polled_at < max_age_s:
                return
            removed = await self._scan()
            changed = await asyncio.to_thread(self._read_changes)
            await self._ask_live_runs()
            self._polled_at = time.monotonic()
            rows = [entry.row() for entry in self.entries.values() if entry.id in changed or entry.live is not None]
            if rows or removed:
                self.tell("runs", {"changed": rows, "removed": removed})
            for run in changed:
                entry = self.entries[run]
                if entry.index is not None:
                    self._start_update(entry)

    async def _scan(self) -> list[str]:
        """Look for runs that were added or removed."""
        now = time.monotonic()
        if now - self._scanned_at < max(_SCAN_S, self._scan_s / _MAX_SCAN_SHARE):
            return []
        scan = await asyncio.to_thread(self.folders.scan)
        self._scanned_at = time.monotonic()
        self._scan_s = self._scanned_at - now
        self.left_out = scan.left_out
        removed = [run for run in self.entries if run not in scan.runs]
        for run in removed:
            self.entries.pop(run).release()
        for run, source in scan.runs.items():
            if run not in self.entries:
                self.entries[run] = Entry(source, facts=RunFacts({"size_bytes": 0}))
        return removed

    def _read_changes(self) -> set[str]:
        changed = set()
        for entry in list(self.entries.values()):
            known = stamp(entry.source)
            if known != entry.stamp or entry.facts.is_live:
                before = entry.facts.row
                entry.facts = read_facts(entry.source)
                if known != entry.stamp or before != entry.facts.row:
                    changed.add(entry.id)
                entry.stamp = known
        return changed & self.entries.keys()

    async def _ask_live_runs(self) -> None:
        """Ask running collections for their state, and tell those who look at them."""
        wanted = {run for runs in self.listeners.values() for run in runs}
        live = [
            entry
            for entry in self.entries.values()
            if entry.facts.is_live or entry.live is not None or entry.id in self._live
        ]
        for entry in live[:_MAX_LIVE] if self.listeners else ():
            was_live = entry.live is not None or entry.id in self._live
            point = await self.read_live(entry)
            if point is not None:
                self._live.add(entry.id)
            else:
                self._live.discard(entry.id)
            if entry.id in wanted and (point is not None or was_live):
                self.tell("live", {"run": entry.id, "live": self.describe_live(entry, [point] if point else [])})

    async def read_live(self, entry: Entry) -> JsonObject | None:
        """Read the live state of a run; its new point, or None if it is not live."""
        entry.live = None
        if entry.facts.chunks is not None and entry.facts.is_live:
            return entry.history.add_chunks(entry.facts.chunks)
        if not entry.facts.is_live or not entry.source.paths.socket.exists():
            return None
        with suppress(UserError, OSError, ValueError):
            entry.live = await read_snapshot(entry.source.paths)
            return entry.history.add(entry.live)
        return None

    def describe_live(self, entry: Entry, history: list[JsonObject]) -> JsonObject:
        return {
            "state": entry.row()["state"],
            "is_live": entry.live is not None or entry.facts.is_live,
            "at": time.time(),
            "now": describe_snapshot(entry.live) if entry.live is not None else None,
            "history": history,
            "chunks": describe_chunks(entry.facts.chunks) if entry.facts.chunks is not None else None,
        }

    # --- indexes -----------------------------------------------------------------------------------------------------

    async def open_index(self, run: str, wait_s: float | None = None) -> Entry:
        """A run with an index, up to date or with as much of it as was there in time (by default, FIRST_LINES_S)."""
        entry = self.entry(run)
        if entry.index is None or stamp(entry.source) != entry.stamp or entry.progress.state in ("none", "failed"):
            self._start_update(entry)
        if entry.update is not None and entry.is_being_indexed:
            await asyncio.wait([entry.update], timeout=FIRST_LINES_S if wait_s is None else wait_s)
        if entry.index is None:
            raise NotFoundError("the run was removed")
        return entry

    def _start_update(self, entry: Entry) -> None:
        if not entry.is_being_indexed:
            if entry.index is None:
                path = index_path(self._cache, entry.source.paths.output) if self._cache is not None else None
                entry.index = RunIndex(entry.source.paths, path)
            entry.update = asyncio.create_task(self._update(entry, entry.index))

    async def _update(self, entry: Entry, index: RunIndex) -> None:
        loop = asyncio.get_running_loop()
        told_at = 0.0

        def report() -> None:
            nonlocal told_at
            if time.monotonic() - told_at > 0.5:
                told_at = time.monotonic()
                loop.call_soon_threadsafe(self._tell_rows, entry)

        def should_stop() -> bool:
            return self._is_closing or entry.index is not index

        async with self._index_slot:
            with suppress(sqlite3.Error):
                has_changed = await asyncio.to_thread(index.update, should_stop, report)
                if has_changed and entry.index is index and entry.may_estimate:
                    await asyncio.to_thread(entry.estimate_from, entry.table())
        self._tell_rows(entry)
        self._free_memory(entry)

    def _tell_rows(self, entry: Entry) -> None:
        progress = describe_progress(entry.progress)
        self.tell("rows", {"run": entry.id, "rows": progress["rows"], "index": progress})

    def _free_memory(self, used: Entry) -> None:
        indexed = sorted((own for own in self.entries.values() if own.index is not None), key=lambda own: -own.used_at)
        lines = 0
        for entry in indexed:
            lines += entry.progress.lines
            if lines > _MAX_LINES and entry is not used and not entry.is_being_indexed:
                entry.release()

    async def _index_small_runs(self) -> None:
        """Index small runs, the newest first, for the intervals in the table of runs."""
        while True:
            await asyncio.sleep(1.0)
            waiting = [
                entry
                for entry in self.entries.values()
                if entry.estimate is None
                and entry.index is None
                and not entry.facts.is_live
                and entry.source.curve is None
                and 0 < entry.facts.row.get("size_bytes", 0) <= _SMALL_RUN
            ]
            for entry in sorted(waiting, key=lambda own: -(own.facts.row.get("updated_at") or 0.0))[:20]:
                with suppress(UserError, OSError, KeyError):
                    await self._estimate(entry)
            if waiting:
                self.tell(
                    "runs", {"changed": [entry.row() for entry in waiting if entry.id in self.entries], "removed": []}
                )

    async def _estimate(self, entry: Entry) -> None:
        self._start_update(entry)
        if entry.update is not None:
            await entry.update
        if entry.index is None:
            return
        table = entry.table()

        await asyncio.to_thread(entry.estimate_from, table)
        if entry.used_at == 0.0:
            entry.release()


def describe_progress(progress: Progress) -> JsonObject:
    """The progress of an index as JSON."""
    return {
        "state": progress.state,
        "done_bytes": progress.done_bytes,
        "total_bytes": progress.total_bytes,
        "rows": progress.lines,
        "problem": progress.problem,
    }


def describe_estimate(estimate: Estimate) -> JsonObject:
    """An estimate as JSON; unknown bounds are None."""
    return {
        "value": number_or_none(estimate.value),
        "low": number_or_none(estimate.low),
        "high": number_or_none(estimate.high),
        "n": estimate.n,
    }


def is_chunked(entry: Entry) -> bool:
    """Whether workers, not a single process, collect the run."""
    return entry.facts.chunks is not None or ChunkLayout.of(entry.source.paths).is_planned
