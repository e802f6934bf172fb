"""Workers of one run: they share it, split it, lose it and hand it back, and no rollout is lost or counted twice."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gymnast.chunks.committer import write_batch
from gymnast.chunks.finder import ReplannedError
from gymnast.chunks.identity import boot_id
from gymnast.chunks.merge import merge
from gymnast.chunks.planning import ChunkingOptions, plan_run
from gymnast.chunks.status import read_run_status
from gymnast.chunks.worker import WorkerExit, WorkerResult, run_with_servers
from gymnast.chunks.worker_context import WorkerContext, compose_config, open_worker_context, select_instances
from gymnast.chunks.worker_spec import ConfigArguments, WorkerOptions, read_worker_spec
from gymnast.config import Instance, compose, read_environ
from gymnast.errors import DataError, UserError
from gymnast.executors.executor import Submission
from gymnast.executors.local_supervisor import supervisor_name
from gymnast.executors.submissions import write_submission
from gymnast.rollouts.attempt import Failed, Outcome, Scored
from gymnast.rollouts.engine import Engine, EngineOptions
from gymnast.rollouts.observer import RunObserver
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.retry import RetryPolicy
from gymnast.rollouts.runner import WorkItem
from gymnast.rollouts.servers import Servers
from gymnast.store.chunk_files import Holder
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.manifest import read_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.types.task import RolloutKey
from gymnast.wire.calls import Calls
from gymnast.wire.progress import Signals
from tests.helpers.chunked_runs import FACTS, SmallRun, expected_output, record, small_run
from tests.helpers.commands import BIN, DEMO_POLICY
from tests.helpers.commands import Outcome as Told
from tests.helpers.jsonl import read_jsonl
from tests.helpers.waiting import eventually, wait_until

QUICK = WorkerOptions(lease_s=1.5, heartbeat_s=0.1, linger_s=3.0, give_up_after_s=20.0)
ALONE = msgspec.structs.replace(QUICK, lease_s=0.5)
"""For a worker whose chunks are safe however slow the machine is, since there is no other worker."""
LONG_S = 60.0
"""Longer than anything takes on a slow and busy machine."""


@pytest.fixture(autouse=True)
def quick_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are on disk soon after they were kept."""
    monkeypatch.setattr("gymnast.chunks.upkeep._INTERVAL_S", 0.1)


@dataclass
class Hands:
    """Makes attempts without a policy: each takes a while, and some fail."""

    takes_s: float = 0.0
    gate: asyncio.Event | None = None
    """What attempts wait for."""
    fails: Callable[[WorkItem], FailureKind | None] = lambda _: None
    made: Counter[str] = field(default_factory=Counter)
    signals: Signals = field(default_factory=Signals)
    longest_lag_s: float = 0.0

    async def attempt(self, item: WorkItem, timeout_s: float) -> Outcome:
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(self.takes_s)
        self.made[str(item.key)] += 1
        kind = self.fails(item)
        if kind is not None:
            return Failed(FailureDetail(kind, Stage.MODEL, f"it is {kind}"), 0.0, 0.0)
        return Scored(record(item.key), 1.0, self.takes_s)


@dataclass
class Crew:
    """Workers of a run in this process."""

    run: SmallRun
    options: WorkerOptions = QUICK
    engines: list[Engine] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def context(self, name: str) -> WorkerContext:
        manifest = read_manifest(self.run.paths.manifest)
        assert manifest is not None
        return WorkerContext(self.run.paths, self.run.plan, manifest, self.options, Holder(worker=name))

    def start(
        self, name: str, hands: Hands, concurrency: int = 4, max_rollouts: int | None = None, **more: Any
    ) -> asyncio.Task[WorkerResult]:
        def watch(engine: Engine, _: object) -> Any:
            from contextlib import nullcontext

            self.engines.append(engine)
            return nullcontext()

        engine = EngineOptions(concurrency, retry=RetryPolicy(first_delay_s=0.01), give_up_after_s=0.5, **more)
        instances = [agent(max_rollouts)] if max_rollouts is not None else []
        servers = Servers(hands, Calls({}), ["a"], instances)
        observer = RunObserver(say=self.said.append, watch=watch)
        return asyncio.create_task(run_with_servers(self.context(name), servers, RunOptions(engine=engine), observer))


def agent(max_rollouts: int) -> Instance:
    """The agent of all rows, with a limit of its own."""
    settings = {"max_rollouts": max_rollouts}
    return Instance("a", "responses_api_agents", "a", None, None, None, None, None, "process", settings, {}, {})


def settled_once(run: SmallRun) -> None:
    """Everything is scored, once, and the merge is what it has to be."""
    account = read_run_status(run.layout)
    assert (account.scored, account.unsettled) == (account.requested, 0)
    merge(run.paths)
    assert run.paths.output.read_bytes() == expected_output(run)


async def test_workers_share_a_run(tmp_path: Path) -> None:
    run = small_run(tmp_path, 20, 3, 5)
    crew, hands = Crew(run), Hands(0.005)
    ended = await asyncio.gather(*(crew.start(f"w{number}", hands) for number in range(3)))
    assert [one.end for one in ended] == [WorkerExit.NOTHING_LEFT] * 3
    assert sum(one.finished.scored for one in ended) == 60
    assert max(hands.made.values()) == 1
    settled_once(run)


@pytest.mark.parametrize(
    "limits",
    [{"concurrency": 1}, {"concurrency": 4, "max_rollouts": 1, "read_ahead": 256}],
    ids=["few at once", "few at once of its agent"],
)
async def test_an_idle_worker_gets_rows_of_a_straggler(tmp_path: Path, limits: dict[str, Any]) -> None:
    run = small_run(tmp_path, 30, 1, 40)
    crew, slow, quick = Crew(run), Hands(gate=asyncio.Event()), Hands(0.01)
    first = crew.start("slow", slow, **limits)
    await eventually(lambda: len(crew.engines[0].in_flight) == 1 if crew.engines else False, within_s=LONG_S)
    second = crew.start("quick", quick)
    await eventually(lambda: sum(quick.made.values()) > 15, within_s=LONG_S)
    assert slow.gate is not None
    slow.gate.set()
    await asyncio.gather(first, second)
    assert any("." in view.chunk.id for view in run.views())
    assert sum(quick.made.values()) > sum(slow.made.values())
    assert max((slow.made + quick.made).values()) == 1
    settled_once(run)


async def test_who_lost_a_lease_lets_go(tmp_path: Path) -> None:
    """Somebody else claimed the chunk although its holder lives: nothing counts twice, and both end."""
    run = small_run(tmp_path, 40, 1, 40)
    crew, hands = Crew(run, ALONE), Hands(0.1)
    first = crew.start("first", hands, concurrency=2)
    await eventually(lambda: read_run_status(run.layout).scored > 1, within_s=LONG_S)
    taken = run.claim(run.view("00000"), "thief", "stolen")
    assert taken is not None
    await eventually(lambda: any("taken over by another worker" in text for text in crew.said), within_s=LONG_S)
    rows = [row.key for row in taken.unstarted]
    assert 0 < len(rows) < 40
    hands.takes_s = 0.0
    worked = await first  # it watches the thief, who never beats, and takes the chunk back
    assert worked.end is WorkerExit.NOTHING_LEFT
    taken.close()
    settled_once(run)


@pytest.mark.parametrize("leases", [0.5, 2.0], ids=["shorter than a lease", "longer than a lease"])
async def test_a_file_system_that_refuses_writes_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leases: float
) -> None:
    run = small_run(tmp_path, 40, 1, 10)
    crew, hands = Crew(run, ALONE), Hands(0.05)
    refused = [0]
    until: float | None = None

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if until is not None and (time.monotonic() < until or not refused[0]):
                refused[0] += 1
                raise OSError(errno.EIO, "the file system refuses")
            return real(*arguments, **named)

        return call

    for name in ("pwrite", "link", "fsync"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    first = crew.start("first", hands)
    await eventually(lambda: read_run_status(run.layout).scored > 3, within_s=LONG_S)
    until = time.monotonic() + leases * ALONE.lease_s
    worked = await first
    assert refused[0] > 0
    assert worked.end is WorkerExit.NOTHING_LEFT
    assert any("cannot write to the run's folder" in text and "refuses" in text for text in crew.said)
    assert max(hands.made.values()) == 1, "rollouts were made again"
    settled_once(run)


async def test_nothing_is_started_while_a_file_system_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Network file systems do not refuse when their server is away: they keep whoever writes waiting."""
    run = small_run(tmp_path, 400, 1, 400)
    crew, hands = Crew(run, ALONE), Hands(0.02)
    back = threading.Event()
    back.set()
    real = os.pwrite

    def hanging(*arguments: Any) -> int:
        back.wait()
        return real(*arguments)

    monkeypatch.setattr(os, "pwrite", hanging)
    first = crew.start("first", hands)
    await eventually(lambda: read_run_status(run.layout).scored > 3, within_s=LONG_S)
    back.clear()
    try:
        await eventually(lambda: crew.engines[0].is_held and not crew.engines[0].in_flight, within_s=LONG_S)
        begun = sum(hands.made.values())
        await asyncio.sleep(0.3)
        assert sum(hands.made.values()) == begun < 400, "its lease may be another's by now"
    finally:
        back.set()
    hands.takes_s = 0.0
    assert (await first).end is WorkerExit.NOTHING_LEFT
    settled_once(run)


async def test_a_file_system_that_never_comes_back_ends_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(tmp_path, 8, 1, 4)
    crew = Crew(run, msgspec.structs.replace(QUICK, give_up_after_s=0.3))

    def refuse(*_: Any) -> int:
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(os, "pwrite", refuse)
    monkeypatch.setattr("gymnast.chunks.worker.PATIENCE_S", 0.1)
    with pytest.raises(UserError, match="was not writable for"):
        await crew.start("first", Hands())
    assert read_run_status(run.layout).scored == 0


async def test_a_worker_that_is_drained_hands_back_what_it_has_not_started(tmp_path: Path) -> None:
    run = small_run(tmp_path, 30, 1, 10)
    crew, hands = Crew(run), Hands(0.1)
    first = crew.start("first", hands, concurrency=3)
    await eventually(lambda: read_run_status(run.layout).scored > 3)
    crew.engines[0].drain("interrupted by SIGTERM")
    worked = await first
    assert worked.end is WorkerExit.DRAINED
    assert worked.end.exit_code == 75
    account = read_run_status(run.layout)
    assert (account.in_flight, account.unknown, account.states["held"]) == (0, 0, 0)
    assert account.scored == worked.finished.scored == sum(hands.made.values())
    await crew.start("second", hands)
    assert max(hands.made.values()) == 1, "what was in flight was finished, not thrown away"
    settled_once(run)


async def test_a_worker_that_cannot_succeed_leaves_the_run_to_others(tmp_path: Path) -> None:
    run = small_run(tmp_path, 12, 1, 4)
    crew = Crew(run)
    broken = Hands(fails=lambda _: FailureKind.MODEL_AUTH)
    worked = await crew.start("broken", broken)
    assert worked.end is WorkerExit.GAVE_UP
    assert worked.end.exit_code == 1
    account = read_run_status(run.layout)
    assert account.states["held"] == 0
    assert account.unsettled + sum(account.failed.values()) == 12


async def test_failed_attempts_count_on_with_the_next_holder(tmp_path: Path) -> None:
    """Three attempts in all, whoever makes them."""
    run = small_run(tmp_path, 3, 1, 3)
    crew = Crew(run)
    seen: list[int] = []

    def fails(item: WorkItem) -> FailureKind | None:
        if item.key.task == 1:
            seen.append(item.attempts)
            if len(seen) == 2:
                crew.engines[-1].drain("enough for now")
            return FailureKind.VERIFIER_ERROR
        return None

    assert (await crew.start("first", Hands(fails=fails))).end is WorkerExit.DRAINED
    assert (await crew.start("second", Hands(fails=fails))).end is WorkerExit.NOTHING_LEFT
    assert seen == [0, 1, 2]
    account = read_run_status(run.layout)
    assert (account.scored, account.failed) == (2, {"verifier_error": 1})
    assert merge(run.paths).retries == 2
    assert [row["_ng_attempt_index"] for row in read_jsonl(run.paths.failures)] == [0, 1, 2]


# --- the command -----------------------------------------------------------------------------------------------------


def submitted(folder: Path, latency_s: float = 0.0, repeats: int = 2) -> Path:
    """A run of the shipped example rows with the scripted policy."""
    names = ConfigArguments(
        environments=("mcqa",),
        config_paths=(DEMO_POLICY,),
        overrides=(
            "+reproducible_records=true",
            f"++policy_model.responses_api_models.scripted_model.latency_s={latency_s}",
        ),
        folder=str(folder),
    )
    config = compose(
        read_environ(), environments=names.environments, config_paths=names.config_paths, overrides=names.overrides
    ).require_valid()
    options = RunOptions(
        source=config.roots.require("resources_servers/mcqa/data/example.jsonl", "rows"),
        output=folder / "x.jsonl",
        plan=PlanOptions(agent="mcqa_simple_agent", repeats=repeats),
        engine=EngineOptions(concurrency=4),
    )
    plan_run(
        options, config, names, ChunkingOptions(workers=3, lease_s=3.0, heartbeat_s=0.3, linger_s=4.0, grace_s=5.0)
    )
    return options.paths.output


def worker(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.log").open("wb") as log:
        command = [str(BIN / "gymnast"), "worker", "x.jsonl", "--name", name, *arguments]
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def has_scored(output: Path, name: str) -> bool:
    account = read_run_status(ChunkLayout.of(RunPaths(output)))
    return any(one.worker == name and one.scored for one in account.chunks)


def test_killed_drained_and_doubled_workers_leave_the_run_of_an_undisturbed_one(
    tmp_path: Path, invoke: Callable[..., Told]
) -> None:
    """The whole thing on the command line: SIGKILL, SIGUSR1, status, merge, and the same bytes as plain collect."""
    output = submitted(tmp_path, 0.05, repeats=40)
    first, second = worker(tmp_path, "first"), worker(tmp_path, "second")
    try:
        wait_until(lambda: has_scored(output, "first") and has_scored(output, "second"))
        first.kill()
        first.wait()
        second.send_signal(signal.SIGUSR1)
        assert second.wait(timeout=LONG_S) == 75, (tmp_path / "second.log").read_text()
        status = invoke("gymnast", "status", "x.jsonl", "--json").json()
        parts = status["scored"] + sum(status["failed"].values()) + status["in_flight"] + status["unknown"]
        assert parts + status["owed"] == status["requested"] == 200
        assert 0 < status["scored"] < 200
        assert status["states"]["held"] == 0
        refused = invoke("gymnast", "merge", "x.jsonl")
        assert refused.code == 2
        assert "not settled" in refused.err
        third = worker(tmp_path, "third", "--concurrency", "16")
        assert third.wait(timeout=LONG_S) == 0, (tmp_path / "third.log").read_text()
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
    assert invoke("gymnast", "merge", "x.jsonl").code == 0
    collected = invoke(
        *("gymnast", "collect", "-e", "mcqa", "-c", DEMO_POLICY),
        *("-i", "resources_servers/mcqa/data/example.jsonl", "-o", "plain.jsonl", "-n", "40", "--concurrency", "8"),
        "+reproducible_records=true",
    )
    assert collected.code == 0, collected.err
    assert sorted(output.read_bytes().splitlines()) == sorted((tmp_path / "plain.jsonl").read_bytes().splitlines())
    resumed = invoke("gymnast", "collect", "-e", "mcqa", "-c", DEMO_POLICY, "-i", "x", "-o", "x.jsonl", "--resume")
    assert resumed.err.startswith("this run is split into chunks")


def test_jobs_that_wait_in_a_queue_are_not_an_interruption(tmp_path: Path, invoke: Callable[..., Told]) -> None:
    """Nobody holds a chunk yet, and nobody has to add workers."""
    output = submitted(tmp_path)
    here = {"folder": str(tmp_path / "jobs"), "host": socket.gethostname(), "boot": boot_id()}
    supervisor = f"{supervisor_name(os.getpid())}-1"  # this process, which never starts one
    waiting = Submission(number=1, executor="local", jobs=(supervisor,), workers=2, at=0.0, by="me", details=here)
    layout = ChunkLayout.of(RunPaths(output))
    before = invoke("gymnast", "status", "x.jsonl")
    assert (before.code, "interrupted" in before.out, "--resume" in before.err) == (1, True, True)
    layout.submissions.mkdir()
    write_submission(layout, waiting)
    result = invoke("gymnast", "status", "x.jsonl")
    assert (result.code, "waiting for jobs" in result.out, result.err) == (0, True, "")


def test_a_log_that_cannot_be_written_ends_no_worker(tmp_path: Path) -> None:
    """A full file system refuses what a worker says, too."""
    output = submitted(tmp_path)
    with Path("/dev/full").open("wb") as full:
        command = [str(BIN / "gymnast"), "worker", "x.jsonl"]
        subprocess.run(command, cwd=tmp_path, stdout=full, stderr=full, timeout=LONG_S, check=False)
    assert read_run_status(ChunkLayout.of(RunPaths(output))).scored == 10


def test_a_worker_with_other_settings_is_refused_with_the_difference(tmp_path: Path) -> None:
    output = submitted(tmp_path)
    layout = ChunkLayout(output.with_name("x_chunks"))
    spec = read_worker_spec(layout)
    context = open_worker_context(RunPaths(output), spec)
    assert select_instances(context, compose_config(spec, read_environ()))
    seed = "++policy_model.responses_api_models.scripted_model.seed=7"
    other = msgspec.structs.replace(spec, config=msgspec.structs.replace(spec.config, overrides=(seed,)))
    with pytest.raises(UserError, match=r"seed: \(absent\) -> 7"):
        select_instances(context, compose_config(other, read_environ()))


async def test_a_worker_whose_run_was_planned_again_ends_and_says_so(tmp_path: Path) -> None:
    run = small_run(tmp_path, 20, 1, 5)
    crew = Crew(run)
    first = crew.start("first", Hands(0.1), concurrency=2)
    await eventually(lambda: read_run_status(run.layout).scored > 1)
    another = run.layout.plan.with_name("another")
    another.write_bytes(run.layout.plan.read_bytes())
    another.replace(run.layout.plan)
    with pytest.raises(ReplannedError):
        await asyncio.wait_for(first, LONG_S)


async def test_a_worker_that_cannot_read_its_rows_ends_and_keeps_what_it_has(tmp_path: Path) -> None:
    run = small_run(tmp_path, 20, 1, 5)
    crew = Crew(run)
    first = crew.start("first", Hands(0.2), concurrency=1)
    await eventually(lambda: len(list(run.layout.chunks.iterdir())) == 1)
    os.truncate(run.paths.materialized_inputs, 10)
    with pytest.raises(DataError, match="the materialized inputs do not match the plan"):
        await asyncio.wait_for(first, LONG_S)
    account = read_run_status(run.layout)
    assert account.scored > 0
    assert account.states["held"] == account.states["silent"] == 0, "what it held is anybody's"


async def test_a_write_that_was_given_up_changes_nothing_when_it_wakes_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system hangs in the first of two writes, and is written to again meanwhile."""
    run = small_run(tmp_path, 2, 1, 1)
    chunks = [run.claim(run.view(name), "a", name) for name in ("00000", "00001")]
    held = [one for one in chunks if one is not None]
    for one in held:
        row = one.next_row()
        assert row is not None
        one.record_scored(row.key, record(row.key), FACTS)
    wakes, fsync, calls = threading.Event(), os.fsync, []

    def hanging(file: int) -> None:
        calls.append(file)
        if len(calls) == 1:
            wakes.wait()
        fsync(file)

    async def commit() -> None:
        pending = [(one, one.take_pending()) for one in held]
        await write_batch(pending, lambda one: one[1].write(), lambda one: one[0].confirm(one[1]))

    monkeypatch.setattr(os, "fsync", hanging)
    given_up = asyncio.create_task(commit())
    await eventually(lambda: bool(calls))
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await commit()
    wakes.set()
    await asyncio.sleep(0.2)
    for one in held:
        assert one.folder.scored_records(1).read_bytes() == record(RolloutKey(int(one.chunk.id), 0)) + b"\n"
        one.close()
