"""Collecting: every requested rollout ends as a scored record or as a failure record with its evidence."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymnast.errors import UserError
from gymnast.rollouts.attempt import Failed, Scored, attempt
from gymnast.rollouts.control import ControlCommands
from gymnast.rollouts.engine import Engine, EngineOptions
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.prepare import prepare_run
from gymnast.rollouts.retry import RetryPolicy
from gymnast.rollouts.run_store import FileRunStore
from gymnast.rollouts.runner import LocalRunner
from gymnast.rollouts.snapshot import make_snapshot
from gymnast.rollouts.tally import Tally, stats_of
from gymnast.store.append import AppendLog
from gymnast.store.lock import RunLock
from gymnast.store.manifest import Counts, RunState
from gymnast.store.paths import RunPaths
from gymnast.types.events import Event, RolloutFailed, RolloutScored
from gymnast.types.totals import AgentStats, RolloutFacts
from gymnast.wire.calls import Calls
from gymnast.wire.message import Reply, Request
from gymnast.wire.progress import Signals
from tests.helpers.jsonl import read_jsonl, write_jsonl
from tests.helpers.waiting import eventually

ROW: dict[str, Any] = {"responses_create_params": {"input": "q"}, "agent_ref": {"name": "a"}}


class Agent:
    """An agent reached by a transport of ours: what it answers depends on the row's `do` and on the attempt."""

    address = "test"

    def __init__(self) -> None:
        self.running = self.most = 0
        self.attempts: Counter[int] = Counter()

    async def send(self, request: Request) -> Reply:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0.001)
            return await self.answer(request.body)
        finally:
            self.running -= 1

    async def answer(self, row: Any) -> Reply:
        self.attempts[row["_ng_task_index"]] += 1
        do = row.get("do", "score")
        if do.startswith("flaky"):
            do = "crash" if self.attempts[row["_ng_task_index"]] < int(do.removeprefix("flaky")) else "score"
        base = {"responses_create_params": row["responses_create_params"], "response": {"output": []}}
        replies: dict[str, Any] = {
            "score": Reply(200, {**base, "reward": 1.0}),
            "crash": Reply(500, "RuntimeError('x')"),
            "refuse": Reply(422, {"detail": [{"loc": ["body"], "msg": "no", "type": "missing", "input": None}]}),
            "nan": Reply(200, {**base, "reward": float("nan")}),
            "none": Reply(200, None),
            "judge": Reply(
                200, {**base, "reward": 0.0, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "gone"}
            ),
            "reported": Reply(200, {**base, "reward": 0.0, "_ng_failure_class": "timeout_exceeded"}),
            "silent": Reply(200, {**base, "reward": 1.0, "_ng_no_persist": True}),
        }
        if do == "hang":
            await asyncio.Event().wait()
        found: Reply = replies[do]
        return found


FAST = RetryPolicy(first_delay_s=0.01)


class World:
    """A run of rows through the agent above."""

    def __init__(self, folder: Path, rows: list[Any], **plan: Any) -> None:
        self.paths = RunPaths(folder / "x.jsonl")
        source = write_jsonl(folder / "in.jsonl", [{**ROW, "n": n, **row} for n, row in enumerate(rows)])
        self.options = RunOptions(source=source, output=self.paths.output, plan=PlanOptions(**plan), existing="resume")
        self.agent = Agent()
        self.events: list[Event] = []
        self.engine: Engine | None = None

    async def run(self, *, retry_failed: bool = False, **options: Any) -> tuple[RunState, Counts]:
        with RunLock(self.paths.lock):
            prepared = prepare_run(self.options, ["a"], lambda _: [])
            given = EngineOptions(**{"concurrency": 8, "retry": FAST, **options})
            attempts = given.retry.max_attempts
            async with FileRunStore(
                self.paths, prepared.manifest, max_attempts=attempts, retry_failed=retry_failed
            ) as store:
                runner = LocalRunner(Calls({"a": self.agent}), Signals())
                self.engine = Engine(store, runner, given, self.events.append, ["a"])
                state = await self.engine.run()
                await store.save(state)
                return state, store.counts()

    @property
    def scored(self) -> list[Any]:
        return read_jsonl(self.paths.output)

    @property
    def failures(self) -> list[Any]:
        return read_jsonl(self.paths.failures)


async def test_good_and_bad_rollouts_go_to_their_files(tmp_path: Path) -> None:
    kinds = ["score", "crash", "refuse", "nan", "none", "judge", "reported", "score"]
    world = World(tmp_path, [{"do": kind} for kind in kinds])
    state, counts = await world.run()
    assert state is RunState.COMPLETE
    assert (counts.requested, counts.scored, counts.owed) == (8, 2, 0)
    assert counts.failed == {
        "agent_error": 1,
        "agent_rejected": 1,
        "agent_bad_reply": 2,
        "judge_failed": 1,
        "agent_reported": 1,
    }
    assert {row["_ng_task_index"] for row in world.scored} == {0, 7}
    attempts = Counter(row["_ng_task_index"] for row in world.failures)
    assert attempts == {1: 3, 2: 1, 3: 1, 4: 1, 5: 3, 6: 3}  # only what may help is tried again
    assert sum(isinstance(event, RolloutScored) for event in world.events) == 2
    finals = [event.final for event in world.events if isinstance(event, RolloutFailed)]
    assert (finals.count(True), finals.count(False)) == (6, 6)


async def test_a_scored_record_ends_with_the_rows_identity(tmp_path: Path) -> None:
    world = World(tmp_path, [{"skills_ref": {"path": "s"}, "_ng_rollout_id": "mine"}])
    await world.run()
    record = world.scored[0]
    assert list(record)[:3] == ["responses_create_params", "response", "reward"]
    assert list(record)[3:] == ["_ng_task_index", "_ng_rollout_index", "agent_ref", "skills_ref", "_ng_rollout_id"]


async def test_a_failure_record_has_its_evidence(tmp_path: Path) -> None:
    world = World(tmp_path, [{"do": "refuse"}, {"do": "judge"}])
    await world.run(retry=RetryPolicy(max_attempts=1))
    refused, judged = sorted(world.failures, key=lambda row: row["_ng_task_index"])
    assert (refused["_ng_failure_class"], refused["_ng_failure_terminal"], refused["_ng_attempt_index"]) == (
        *("agent_rejected", True, 0),
    )
    failure = refused["failure"]
    assert (failure["kind"], failure["layer"], failure["stage"], failure["status"]) == (
        *("agent_rejected", "data_schema", "agent", 422),
    )
    assert "missing" in failure["body"]
    assert failure["chain"] == ["a/run 422"]
    assert failure["seconds"] >= 0
    assert list(refused)[-2:] == ["_ng_task_index", "_ng_rollout_index"]
    assert judged["_ng_failure_class"] == "judge_failed"
    assert judged["response"] == {"output": []}  # kept, so that it can be verified again
    assert "gone" in judged["failure"]["message"]


async def test_a_flaky_rollout_is_tried_again_and_says_which_attempt_it_is(tmp_path: Path) -> None:
    world = World(tmp_path, [{"do": "flaky3"}, {"do": "flaky2"}, {}])
    state, counts = await world.run()
    assert (state, counts.scored, counts.retries, counts.attempts) == (RunState.COMPLETE, 3, 3, 6)
    by_task = {row["_ng_task_index"]: row.get("_ng_attempt_index") for row in world.scored}
    assert by_task == {0: 2, 1: 1, 2: None}
    assert [row["_ng_attempt_index"] for row in world.failures if row["_ng_task_index"] == 0] == [0, 1]


async def test_a_hanging_rollout_meets_its_deadline_and_the_rest_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path, [{"do": "hang"}] + [{"do": "score"}] * 5)
    _, counts = await world.run(rollout_timeout_s=0.1, retry=RetryPolicy(max_attempts=1))
    assert (counts.scored, counts.failed) == (5, {"rollout_timeout": 1})
    assert world.failures[0]["failure"]["layer"] == "throughput"


async def test_concurrency_is_bounded_and_used(tmp_path: Path) -> None:
    world = World(tmp_path, [{}] * 60)
    _, counts = await world.run(concurrency=7)
    assert counts.scored == 60
    assert world.agent.most == 7


async def test_agents_have_limits_of_their_own(tmp_path: Path) -> None:
    world = World(tmp_path, [{}] * 40)
    _, counts = await world.run(concurrency=20, agent_limits={"a": 3})
    assert counts.scored == 40
    assert world.agent.most == 3


async def test_no_persist_rows_are_counted_but_not_written(tmp_path: Path) -> None:
    world = World(tmp_path, [{"do": "silent"}])
    _, counts = await world.run()
    assert counts.scored == 1
    assert world.paths.output.read_text() == ""


async def test_the_retry_budget_bounds_a_run(tmp_path: Path) -> None:
    world = World(tmp_path, [{"do": "crash"}] + [{}] * 20)
    policy = RetryPolicy(first_delay_s=0.001, max_delay_s=0.002, max_attempts=500, budget_share=0.0)
    state, counts = await world.run(retry=policy)
    assert state is RunState.INCOMPLETE
    assert (counts.retries, counts.owed, counts.scored) == (100, 1, 20)


async def test_draining_finishes_what_is_in_flight_and_owes_the_rest(tmp_path: Path) -> None:
    world = World(tmp_path, [{}] * 200)
    task = asyncio.create_task(world.run(concurrency=5))
    while world.engine is None or len(world.engine.store.settled.scored) < 20:
        await asyncio.sleep(0.001)
    world.engine.drain("test")
    state, counts = await task
    assert state is RunState.INTERRUPTED
    assert 20 <= counts.scored < 200
    assert counts.scored + counts.owed == 200
    assert len(world.scored) == counts.scored
    assert await world.run() == (RunState.COMPLETE, Counts(200, 200, {}, 0, 200, 0))


async def test_stopping_abandons_what_is_in_flight_and_loses_nothing_scored(tmp_path: Path) -> None:
    world = World(tmp_path, [{}] * 50 + [{"do": "hang"}] * 3)
    task = asyncio.create_task(world.run(concurrency=5))
    while world.engine is None or len(world.engine.store.settled.scored) < 50:
        await asyncio.sleep(0.001)
    world.engine.stop_now("test")
    state, counts = await task
    assert (state, counts.scored, counts.owed) == (RunState.INTERRUPTED, 50, 3)


async def test_pausing_and_steering(tmp_path: Path) -> None:
    world = World(tmp_path, [{}] * 400 + [{"do": "hang"}])
    task = asyncio.create_task(world.run(concurrency=5))
    while world.engine is None or len(world.engine.store.settled.scored) < 20:
        await asyncio.sleep(0.001)
    control = ControlCommands(world.engine, lambda: make_snapshot(world.engine, 0.0, Signals()))  # type: ignore[arg-type]
    assert await control.handle({"command": "pause"}) == "paused"
    await eventually(lambda: world.engine is not None and not world.engine.in_flight)
    before = len(world.engine.store.settled.scored)
    await asyncio.sleep(0.04)
    assert len(world.engine.store.settled.scored) == before
    assert (await control.handle({"command": "status"}))["state"] == "paused"
    assert await control.handle({"command": "set", "argument": "concurrency=2"}) == "concurrency is 2"
    assert await control.handle({"command": "resume"}) == "resumed"
    while len(world.engine.store.settled.scored) < 400:
        await asyncio.sleep(0.005)
    while (status := await control.handle({"command": "status"}))["oldest"][0]["stage"] == "plan":
        await asyncio.sleep(0.005)  # it is started, and has not reached its agent yet
    assert status["oldest"][0]["key"] == "400:0"
    assert status["oldest"][0]["stage"] == "agent"
    for bad in ("cancel", "set"):
        with pytest.raises(UserError):
            await control.handle({"command": bad, "argument": "nonsense"})
    with pytest.raises(UserError, match="not in flight"):
        await control.handle({"command": "cancel", "argument": "7:7"})
    with pytest.raises(UserError, match="did you mean 'pause'"):
        await control.handle({"command": "pauze"})
    assert await control.handle({"command": "cancel", "argument": "400:0"}) == "cancelled 400:0"
    state, counts = await task
    assert (state, counts.scored, counts.failed) == (RunState.COMPLETE, 400, {"cancelled": 1})


async def test_a_hopeless_run_stops_early_and_says_why(tmp_path: Path) -> None:
    world = World(tmp_path, [{"do": "refuse"}] * 500)
    state, counts = await world.run()
    assert state is RunState.INCOMPLETE
    assert sum(counts.failed.values()) < 60
    assert counts.owed > 400
    assert world.engine is not None
    assert "all failed" in world.engine.circuit_breaker.reasons()["a"]


async def test_an_unknown_agent_is_a_config_failure() -> None:
    row = {**ROW, "agent_ref": {"name": "knwon"}}
    outcome = await attempt(Calls({"known": Agent()}), orjson.dumps(row), 0, 1.0)
    assert isinstance(outcome, Failed)
    assert outcome.detail.kind == "agent_not_found"
    assert "did you mean 'known'" in outcome.detail.message


async def test_a_scored_attempt_knows_its_reward() -> None:
    outcome = await attempt(Calls({"a": Agent()}), orjson.dumps({**ROW, "_ng_task_index": 0}), 0, 1.0)
    assert isinstance(outcome, Scored)
    assert outcome.reward == 1.0


def test_tallies_count_by_agent() -> None:
    tally = Tally()
    tally.add_scored(RolloutFacts("a", 1.0, 20, seconds=0.5))
    tally.add_scored(RolloutFacts("a", 0.0, None, seconds=1.5))
    for final in (False, True):
        tally.add_failure("b", "model_error")
        if final:
            tally.fail("b", "model_error")
    assert (tally.scored, tally.done) == (2, 3)
    stats = stats_of(tally.totals())
    assert stats == {"a": AgentStats(2, 0.5, 0, 0, 0, 0, 20.0, 1.0), "b": AgentStats(0, None, 1, 1)}


# --- the files -------------------------------------------------------------------------------------------------------


async def test_appended_lines_are_in_order_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.jsonl"
    async with AppendLog(path) as log:
        for number in range(1000):
            log.append(orjson.dumps({"n": number}))
            if number % 300 == 0:
                await log.commit()
    assert [row["n"] for row in read_jsonl(path)] == list(range(1000))
    async with AppendLog(path) as log:
        log.append(b'{"n":1000}')
    assert len(read_jsonl(path)) == 1001


async def test_lines_come_to_disk_without_closing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    async with AppendLog(path) as log:
        log.append(b"{}")
        await eventually(lambda: path.read_text() == "{}\n")


async def test_a_full_disk_is_an_error_in_words_and_nothing_more_is_accepted() -> None:
    async with AppendLog(Path("/dev/full")) as log:
        log.append(b"{}")
        with pytest.raises(UserError, match="No space left"):
            await log.commit()
        with pytest.raises(UserError, match="No space left"):
            log.append(b"{}")


def test_paths_of_a_run(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "run.x.jsonl")
    assert paths.materialized_inputs.name == "run.x_materialized_inputs.jsonl"
    assert paths.failures.name == "run.x_failures.jsonl"
    assert paths.set_aside() is None
    for number in (1, 2):
        paths.output.write_text(json.dumps(number))
        paths.failures.write_text("")
        folder = paths.set_aside()
        assert folder is not None
        assert folder.name == f"run.x_previous_{number}"
        assert (folder / "run.x.jsonl").read_text() == str(number)
        assert not paths.existing_files()
