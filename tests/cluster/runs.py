"""Runs that many work on, for tests: planned with the steady agent, looked at and audited from their files."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnast.chunks.planning import ChunkingOptions, PlannedRun, plan_run
from gymnast.chunks.status import RunStatus, read_run_status
from gymnast.chunks.worker_spec import ConfigArguments
from gymnast.config import compose, read_environ
from gymnast.executors.executor import Executor, Submission, WorkerRequest
from gymnast.rollouts.engine import EngineOptions
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.plan import PlanOptions
from gymnast.store.chunk_files import Holder
from gymnast.store.chunk_state import walk_chunks
from gymnast.types.job import JobView
from gymnast.types.task import ROLLOUT_INDEX, TASK_INDEX
from tests.helpers.commands import run_command
from tests.helpers.jsonl import read_jsonl, write_jsonl

STEADY = Path(__file__).parent / "steady"
CONFIG = "responses_api_agents/steady_agent/configs/steady_agent.yaml"
HOLD = "hold"
LEASE_S = 3.0
HEARTBEAT_S = 0.5


@dataclass(frozen=True)
class SharedRun:
    """A planned run and what it should come to."""

    folder: Path
    planned: PlannedRun
    tasks: int
    repeats: int
    failing: int
    """Every so many tasks one fails for good; 0 for none."""

    @property
    def output(self) -> Path:
        return self.planned.paths.output

    @property
    def requested(self) -> int:
        return self.tasks * self.repeats

    @property
    def failed(self) -> int:
        return sum(self.repeats for task in range(self.tasks) if fails(task, self.failing))

    def release(self) -> None:
        """Let the rollouts of a run that is held end."""
        (self.folder / HOLD).unlink()

    def wanted(self, count: int, **options: Any) -> WorkerRequest:
        return WorkerRequest(self.output, count, **options)

    def account(self) -> RunStatus:
        """How it stands."""
        status = read_run_status(self.planned.layout)
        assert status.requested == self.requested == status.scored + sum(status.failed.values()) + status.unsettled
        return status

    def scored(self) -> int:
        """Scored rollouts in the files of its chunks, whoever wrote them; a little late, and cheap."""
        files = self.planned.layout.chunks.glob("*/[0-9]*.jsonl")
        return sum(path.read_bytes().count(b"\n") for path in files if not path.stem.endswith("_failures"))

    def holders(self) -> dict[str, Holder]:
        """Who holds which chunk now."""
        states = {v.chunk.id: v.folder_state for v in walk_chunks(self.planned.layout, self.planned.plan)}
        return {name: one.lease.holder for name, one in states.items() if one.lease is not None and one.is_held}

    def merge(self) -> bytes:
        """The merged rollouts, audited."""
        done = run_command(self.folder, "gymnast", "merge", str(self.output))
        assert done.code == 0, done.err
        rows = read_jsonl(self.output)
        keys = Counter((row[TASK_INDEX], row[ROLLOUT_INDEX]) for row in rows)
        assert max(keys.values()) == 1, f"scored twice: {[key for key, times in keys.items() if times > 1][:5]}"
        failures = read_jsonl(self.planned.paths.failures)
        lost = {(row[TASK_INDEX], row[ROLLOUT_INDEX]) for row in failures if row.get("_ng_failure_terminal")}
        assert not keys.keys() & lost
        assert len(keys) + len(lost) == self.requested, f"{len(keys)} scored, {len(lost)} failed"
        assert len(lost) == self.failed
        return self.output.read_bytes()


def fails(task: int, failing: int) -> bool:
    return failing > 0 and task % failing == failing - 1


def shared_run(
    folder: Path,
    *,
    tasks: int,
    repeats: int = 2,
    mean_s: float = 0.1,
    workers: int = 3,
    chunk_rows: int | None = None,
    concurrency: int = 4,
    failing: int = 0,
    name: str = "x",
    speculates: bool = False,
    held: bool = False,
) -> SharedRun:
    """Plan a run whose rollouts take `mean_s` on average; with `held` none ends before `release`."""
    folder.mkdir(parents=True, exist_ok=True)
    hold = folder / HOLD if held else None
    if hold is not None:
        hold.touch()
    options = _names(mean_s, hold)
    config = compose(read_environ(), **options)
    request = RunOptions(
        source=write_jsonl(folder / f"{name}_tasks.jsonl", list(_rows(tasks, failing))),
        output=folder / f"{name}.jsonl",
        plan=PlanOptions(agent="steady_agent", repeats=repeats),
        engine=EngineOptions(concurrency=concurrency),
    )
    names = ConfigArguments(
        config_paths=tuple(options["config_paths"]),
        overrides=tuple(options["overrides"]),
        search_dirs=tuple(map(str, options["search_dirs"])),
        folder=str(folder),
    )
    how = ChunkingOptions(
        workers=workers,
        chunk_rows=chunk_rows,
        lease_s=LEASE_S,
        heartbeat_s=HEARTBEAT_S,
        linger_s=2 * LEASE_S,
        grace_s=1.0,
        speculates=speculates,
    )
    return SharedRun(folder, plan_run(request, config, names, how), tasks, repeats, failing)


def _names(mean_s: float, hold: Path | None = None) -> dict[str, Any]:
    agent = "++steady_agent.responses_api_agents.steady_agent"
    return {
        "config_paths": [CONFIG],
        "overrides": [f"{agent}.mean_s={mean_s}", *([f"{agent}.held_by={hold}"] if hold is not None else [])],
        "search_dirs": [STEADY],
    }


def _rows(tasks: int, failing: int) -> Iterator[dict[str, Any]]:
    for task in range(tasks):
        row: dict[str, Any] = {"responses_create_params": {"input": f"question {task}"}}
        yield {**row, "fails": True} if fails(task, failing) else row


def undisturbed(folder: Path, run: SharedRun) -> bytes:
    """What a collection of the same rows in one process comes to, in plan order."""
    output = folder / "undisturbed.jsonl"
    arguments = ["-c", CONFIG, "--search-dir", str(STEADY), "-i", str(next(run.folder.glob("*_tasks.jsonl")))]
    mean = "++steady_agent.responses_api_agents.steady_agent.mean_s=0.0001"
    done = run_command(
        folder,
        "gymnast",
        "collect",
        *arguments,
        "-o",
        str(output),
        "-n",
        str(run.repeats),
        "--max-failed",
        "100%",
        mean,
    )
    assert done.code == 0, done.err
    lines = sorted(output.read_bytes().split(b"\n")[:-1], key=_key)
    return b"".join(line + b"\n" for line in lines)


def _key(line: bytes) -> tuple[int, int]:
    row = json.loads(line)
    return row[TASK_INDEX], row[ROLLOUT_INDEX]


# --- waiting ---------------------------------------------------------------------------------------------------------


def wait_until(check: Callable[[], bool], what: str, *, within_s: float = 300.0) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.1)


def _last_words(view: JobView) -> str:
    """A job, and the end of its log if it goes on."""
    has_log = view.log is not None and Path(view.log).exists() and not view.state.is_over
    lines = Path(view.log).read_text(errors="replace").splitlines()[-30:] if has_log and view.log else []
    return "\n  ".join([str(view), *lines])


def wait_for_all(executor: Executor, submission: Submission, *, within_s: float = 300.0) -> list[JobView]:
    """Wait until every worker's job is over."""
    found: list[JobView] = []

    def are_over() -> bool:
        found[:] = executor.states(submission)
        return all(view.state.is_over for view in found)

    try:
        wait_until(are_over, "all jobs over", within_s=within_s)
    except AssertionError:
        raise AssertionError("\n".join(["still there:", *map(_last_words, found)])) from None
    return found


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal a process that may be gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
