"""A static site of runs: the web application with the data that its pages need, opened from disk or any web server.

Browsers load neither modules nor JSON from disk: the application is one script, and each piece of data is one, too.

The most informative transcripts are included, up to a limit; the site says what was left out.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from gymnast import __version__
from gymnast.errors import GymnastError, UserError
from gymnast.report.selection import order_rollouts
from gymnast.store.annotations import LABELS
from gymnast.studio.library import Library
from gymnast.studio.pages.columns import columns_page
from gymnast.studio.pages.comparison import compare_page
from gymnast.studio.pages.diagnosis import doctor_page
from gymnast.studio.pages.plots import plots_page
from gymnast.studio.pages.rollouts import rollout_page
from gymnast.studio.pages.run import run_page
from gymnast.studio.pages.tasks import describe_tasks, task_table
from gymnast.studio.query import Query
from gymnast.studio.rollout_page import describe_rows
from gymnast.studio.runs import RunFolders, read_curve
from gymnast.studio.script_bundle import bundle_modules
from gymnast.studio.web_files import WebFiles
from gymnast.types.encoding import encode_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gymnast.studio.library import Entry

MAX_RUNS: Final = 50
MAX_ROWS: Final = 20_000
"""Rows of each table: a page holds and sorts all of them."""
_MAX_COMPARED: Final = 8
_WAIT_S: Final = 3600.0
_POLICY: Final = (
    """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'self'; style-src 'self'; """
    """img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'">"""
)
"""Scripts come from the site's own files only."""


@dataclass(slots=True)
class Site:
    """What was written."""

    folder: Path
    runs: int = 0
    files: int = 0
    size_bytes: int = 0
    left_out: str | None = None
    _notes: list[str] = field(default_factory=list)

    def check_folder(self) -> None:
        """Files of something else must not end up in the site, nor be overwritten."""
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise UserError("the folder is not empty", where=str(self.folder), next="name a new one")

    def write(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.files += 1
        self.size_bytes += len(data)

    def write_data(self, name: str, value: Any) -> None:
        """Write a value as a script that hands its JSON to the page as a string: nothing in it is ever code."""
        text = encode_json(encode_json(value).decode())
        self.write(f"data/{name}.js", b'studioData("%b", %b);\n' % (name.encode(), text))

    def leave_out(self, count: int, what: str) -> None:
        if count > 0:
            self._notes.append(f"{count:,} {what}")

    def finish(self) -> None:
        self.left_out = "; ".join(self._notes) or None


async def export_site(targets: Sequence[Path], folder: Path, *, max_transcripts: int) -> Site:
    """Write the runs into a new or empty folder."""
    site = Site(folder)
    await asyncio.to_thread(site.check_folder)
    async with Library(RunFolders(targets), None) as library:
        await library.poll()
        entries = sorted(library.entries.values(), key=lambda entry: entry.id)
        if not entries:
            raise UserError("there is no run to export", next="name a run, or a folder with runs")
        site.leave_out(len(entries) - MAX_RUNS + library.left_out, "runs")
        entries = entries[:MAX_RUNS]
        for number, entry in enumerate(entries):
            if entry.source.curve is None:
                await library.open_index(entry.id, wait_s=_WAIT_S)
            await asyncio.to_thread(_write_run, site, number, entry, max_transcripts)
        await asyncio.to_thread(_write_comparisons, site, entries)
        await asyncio.to_thread(_write_shell, site, entries)
    return site


def _write_shell(site: Site, entries: Sequence[Entry]) -> None:
    """The application itself, and what it starts with."""
    files = WebFiles()
    modules: dict[str, str] = {}
    for name in files.names():
        file = files.get(name)
        assert file is not None
        if name == "index.html":
            site.write(name, _static_page(file.data.decode()).encode())
        elif name.endswith(".js") and name != "theme.js":
            modules[name] = file.data.decode()
        else:
            site.write(f"web/{name}", file.data)
    site.write("web/studio.js", bundle_modules(modules).encode())
    site.runs = len(entries)
    site.finish()
    rows = [{**entry.row(), "is_live": False} for entry in entries]
    site.write_data("runs", {"runs": rows, "left_out": 0})
    session = {
        "version": __version__,
        "folder": "",
        "read_only": True,
        "labels": list(LABELS),
        "static": True,
        "single_run": entries[0].id if len(entries) == 1 else None,
        "files": {entry.id: str(number) for number, entry in enumerate(entries)},
        "left_out": site.left_out,
    }
    site.write_data("session", session)


def _static_page(page: str) -> str:
    """The page of a site: one script instead of modules, and a policy of its own, as no server sends one."""
    page = re.sub(r'<link rel="modulepreload"[^>]*>\n', "", page)
    page = page.replace('data-mode="live"', 'data-mode="static"')
    page = page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{_POLICY}')
    return page.replace('<script type="module" src="web/main.js">', '<script defer src="web/studio.js">')


def _write_run(site: Site, number: int, entry: Entry, max_transcripts: int) -> None:
    page = run_page(entry)
    page["files"] = {"output": entry.source.paths.output.name, "logs": None}
    page["commands"] = {}
    site.write_data(f"{number}/run", page)
    if entry.source.curve is not None:
        site.write_data(f"{number}/training", read_curve(entry.source.curve))
        return
    site.write_data(f"{number}/columns", columns_page(entry))
    annotations = [msgspec.to_builtins(own) for own in entry.annotations().values()]
    site.write_data(f"{number}/annotations", {"annotations": annotations})
    if page["headline"] is not None:
        site.write_data(f"{number}/plots", plots_page([entry]))
    try:
        site.write_data(f"{number}/doctor", {**doctor_page(entry, {}), "subject": entry.id})
    except GymnastError as error:
        site.leave_out(1, f"diagnosis of {entry.id} ({error})")
    _write_tables(site, number, entry)
    _write_transcripts(site, number, entry, max_transcripts)


def _write_tables(site: Site, number: int, entry: Entry) -> None:
    table, tasks = entry.table(), task_table(entry)
    rows = list(range(min(len(table), MAX_ROWS)))
    described = describe_rows(table, rows)
    site.write_data(f"{number}/rollouts", _one_page(described))
    site.leave_out(len(table) - len(rows), f"rollouts of {entry.id} in its table")
    task_rows = list(range(min(len(tasks), MAX_ROWS)))
    site.write_data(f"{number}/tasks", _one_page(describe_tasks(entry, tasks, task_rows)))
    site.leave_out(len(tasks) - len(task_rows), f"tasks of {entry.id}")


def _one_page(rows: list[Any]) -> dict[str, Any]:
    query = Query(size=max(1, len(rows)))
    index = {"state": "ready", "done_bytes": 0, "total_bytes": 0, "rows": len(rows), "problem": None}
    return {"rows": rows, "total": len(rows), "total_is_exact": True, "page": 0, "size": query.size, "index": index}


def _write_transcripts(site: Site, number: int, entry: Entry, limit: int) -> None:
    table = entry.table()
    rows = np.array(list(islice(_informative_rows(entry), limit)), np.int64)
    for row in rows.tolist():
        key = int(table.keys[row])
        task, rollout = key >> 32, key & 0xFFFFFFFF
        site.write_data(f"{number}/rollout/{task}-{rollout}", rollout_page(entry, task, rollout, full=False))
    site.leave_out(len(table) - len(rows), f"transcripts of {entry.id}")


def _informative_rows(entry: Entry) -> Iterator[int]:
    """Rows in the report's order: failures first, then some of every task."""
    table, (view, _) = entry.table(), entry.view()
    for key in order_rollouts(view):
        row = table.row_of(key)
        if row is not None:
            yield row


def _write_comparisons(site: Site, entries: Sequence[Entry]) -> None:
    compared = [(number, entry) for number, entry in enumerate(entries) if entry.source.curve is None][:_MAX_COMPARED]
    params = {"by_index": False, "page": 0, "size": MAX_ROWS, "sort": "abs", "desc": True}
    for first, a in compared:
        for second, b in compared:
            if first != second:
                try:
                    site.write_data(f"{first}/compare-{second}", compare_page([a, b], params))
                except GymnastError:
                    continue  # they have no task in common
