"""The routes of the JSON API: what each address answers. Checks of who asks are the server's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from gymnast import __version__
from gymnast.store.annotations import LABELS, annotations_path, append_annotation, make_annotation
from gymnast.studio.download import FORMATS, make_download
from gymnast.studio.pages import columns, comparison, diagnosis, plots, rollouts, run, tasks
from gymnast.studio.query import last_of, parse_count, parse_query
from gymnast.studio.requests import Refusal, Reply
from gymnast.studio.rollout_page import MAX_RAW
from gymnast.studio.runs import read_curve
from gymnast.studio.steering import CANCEL_WORKERS, COMMANDS, steer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.studio.library import Entry, Library
    from gymnast.studio.requests import Request
    from gymnast.types.json import JsonObject

MAX_RUNS: Final = 12
"""In one request."""
_DOWNLOAD_WAIT_S: Final = 60.0
"""A file has all rows or is refused: unlike a page, it is not loaded again."""

Handler = Callable[["Request"], Awaitable[Any]]


class Api:
    """The JSON API over a library of runs."""

    def __init__(self, library: Library, *, read_only: bool, single_run: str | None) -> None:
        self._library = library
        self._read_only = read_only
        self._single_run = single_run
        self.routes: dict[tuple[str, str], Handler] = {
            ("GET", "/api/session"): self._session,
            ("GET", "/api/runs"): self._runs,
            ("GET", "/api/run"): self._run,
            ("GET", "/api/run/plots"): self._plots,
            ("GET", "/api/run/live"): self._live,
            ("GET", "/api/run/training"): self._training,
            ("GET", "/api/columns"): self._columns,
            ("GET", "/api/rollouts"): self._rollouts,
            ("GET", "/api/tasks"): self._tasks,
            ("GET", "/api/rollout"): self._rollout,
            ("GET", "/api/rollout/raw"): self._raw,
            ("GET", "/api/compare"): self._compare,
            ("GET", "/api/task/same"): self._same_task,
            ("GET", "/api/doctor"): self._doctor,
            ("GET", "/api/annotations"): self._annotations,
            ("GET", "/api/download"): self._download,
            ("POST", "/api/annotations"): self._annotate,
            ("POST", "/api/control"): self._control,
        }

    async def _session(self, _: Request) -> JsonObject:
        return {
            "version": __version__,
            "folder": str(self._library.folders.root),
            "read_only": self._read_only,
            "labels": list(LABELS),
            "static": False,
            "single_run": self._single_run,
            "files": None,
        }

    async def _runs(self, _: Request) -> JsonObject:
        await self._library.poll(max_age_s=1.0)
        rows = [entry.row() for entry in self._library.entries.values()]
        return {"runs": rows, "left_out": self._library.left_out}

    async def _run(self, request: Request) -> JsonObject:
        entry = await self._library.open_index(request.run())
        return await asyncio.to_thread(run.run_page, entry)

    async def _plots(self, request: Request) -> JsonObject:
        return await asyncio.to_thread(
            plots.plots_page, [await self._library.open_index(own) for own in _runs(request, 1)]
        )

    async def _live(self, request: Request) -> JsonObject:
        entry = self._library.entry(request.run())
        if not entry.history.points or entry.live is None:
            await self._library.read_live(entry)
        return self._library.describe_live(entry, entry.history.points)

    async def _training(self, request: Request) -> JsonObject:
        entry = self._library.entry(request.run())
        if entry.source.curve is None:
            return {"steps": [], "held_out": []}
        return await asyncio.to_thread(read_curve, entry.source.curve)

    async def _columns(self, request: Request) -> JsonObject:
        return await asyncio.to_thread(columns.columns_page, await self._library.open_index(request.run()))

    async def _rollouts(self, request: Request) -> JsonObject:
        query = parse_query(request.params)
        return await asyncio.to_thread(rollouts.rollouts_page, await self._library.open_index(request.run()), query)

    async def _tasks(self, request: Request) -> JsonObject:
        query = parse_query(request.params)
        return await asyncio.to_thread(tasks.tasks_page, await self._library.open_index(request.run()), query)

    async def _rollout(self, request: Request) -> JsonObject:
        entry = await self._library.open_index(request.run())
        full = last_of(request.params, "full") == "1"
        task, rollout = request.index("task"), request.index("rollout")
        return await asyncio.to_thread(rollouts.rollout_page, entry, task, rollout, full=full)

    async def _raw(self, request: Request) -> Reply:
        entry = await self._library.open_index(request.run())
        line = await asyncio.to_thread(rollouts.raw_line, entry, request.index("task"), request.index("rollout"))
        if len(line) > MAX_RAW:
            raise Refusal(413, f"the record has {len(line) >> 20} MiB", "read it from the run's file")
        return Reply(line, "text/plain; charset=utf-8")

    async def _whole(self, runs: Sequence[str], wait_s: float | None = None) -> list[Entry]:
        """Runs that are indexed to their end."""
        entries = [await self._library.open_index(own, wait_s) for own in runs]
        for entry in entries:
            if entry.is_being_indexed:
                raise Refusal(409, f"'{entry.id}' is still being indexed", "try again in some seconds")
        return entries

    async def _same_task(self, request: Request) -> JsonObject:
        entry, other = await self._whole([request.run(), last_of(request.params, "other")])
        return {"task": await asyncio.to_thread(comparison.same_task, entry, other, request.index("task"))}

    async def _compare(self, request: Request) -> JsonObject:
        entries = await self._whole(_runs(request, 2))
        params: JsonObject = {
            "by_index": last_of(request.params, "by_index") == "1",
            "page": parse_count(request.params, "page", 0, 2**31),
            "size": max(1, parse_count(request.params, "size", 100, 500)),
            "sort": last_of(request.params, "sort") or "abs",
            "desc": last_of(request.params, "desc") != "0",
        }
        return await asyncio.to_thread(comparison.compare_page, entries, params)

    async def _doctor(self, request: Request) -> JsonObject:
        entry = self._library.entry(request.run())
        return await asyncio.to_thread(diagnosis.doctor_page, entry, await diagnosis.read_stuck(entry))

    async def _annotations(self, request: Request) -> JsonObject:
        annotations = self._library.entry(request.run()).annotations()
        return {"annotations": [msgspec.to_builtins(own) for own in annotations.values()]}

    async def _download(self, request: Request) -> Reply:
        table, kind = last_of(request.params, "table") or "rollouts", last_of(request.params, "format") or "csv"
        if table not in ("rollouts", "tasks") or kind not in FORMATS:
            raise Refusal(400, "expected table=rollouts|tasks and format=csv|jsonl|parquet")
        (entry,) = await self._whole([request.run()], _DOWNLOAD_WAIT_S)
        data = await asyncio.to_thread(make_download, entry, parse_query(request.params), table, kind)
        name = quote(f"{entry.source.paths.output.stem}_{table}.{kind}")
        disposition = f"attachment; filename*=UTF-8''{name}".encode()
        return Reply(data, FORMATS[kind], 200, [(b"content-disposition", disposition)])

    async def _annotate(self, request: Request) -> JsonObject:
        self._require_writing()
        entry = self._library.entry(_run_of(request.body))
        annotation = make_annotation(request.body)
        await asyncio.to_thread(append_annotation, annotations_path(entry.source.paths.output), annotation)
        self._library.tell("annotations", {"run": entry.id})
        return {"annotation": msgspec.to_builtins(annotation)}

    async def _control(self, request: Request) -> JsonObject:
        self._require_writing()
        entry = self._library.entry(_run_of(request.body))
        command, argument = request.body.get("command"), request.body.get("argument")
        if command not in {*COMMANDS, CANCEL_WORKERS} or not isinstance(argument, str | None):
            raise Refusal(400, "unknown command", f"use one of {', '.join(sorted(COMMANDS))}")
        result = await steer(entry, command, argument)
        await self._library.poll()
        return {"result": result}

    def _require_writing(self) -> None:
        if self._read_only:
            raise Refusal(403, "the studio is read-only", "start gymnast view without --read-only")


def _runs(request: Request, least: int) -> list[str]:
    runs = list(dict.fromkeys(request.params.get("run", [])))
    if not least <= len(runs) <= MAX_RUNS:
        raise Refusal(400, f"expected {least} to {MAX_RUNS} runs, got {len(runs)}")
    return runs


def _run_of(body: Any) -> str:
    run = body.get("run") if isinstance(body, dict) else None
    if not isinstance(run, str):
        raise Refusal(400, "expected a run")
    return run
