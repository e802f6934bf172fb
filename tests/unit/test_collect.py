"""Collecting: every requested rollout ends as a scored record or as a failure record with its evidence."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymnast.errors import UserError
from gymnast.rollouts.attempt import Failed, Scored, attempt
from gymnast.rollouts.collect import CollectOptions, collect
from gymnast.rollouts.plan import PlanOptions, write_plan
from gymnast.rollouts.tally import Tally
from gymnast.store.append import AppendLog
from gymnast.store.paths import RunPaths
from gymnast.types.events import Event, RolloutFailed, RolloutScored, RunFinished, RunStarted
from gymnast.wire.calls import Calls
from gymnast.wire.message import Reply, Request
from tests.support import read_jsonl, write_jsonl

ROW: dict[str, Any] = {"responses_create_params": {"input": "q"}, "agent_ref": {"name": "a"}}


class Agent:
    """An agent reached by a transport of ours: what it answers depends on the row's `do`."""

    address = "test"

    def __init__(self) -> None:
        self.running = self.most = 0

    async def send(self, request: Request) -> Reply:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0.001)
            return await self.answer(request.body)
        finally:
            self.running -= 1

    async def answer(self, row: Any) -> Reply:
        do = row.get("do", "score")
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


async def run(folder: Path, rows: list[Any], **options: Any) -> tuple[RunFinished, list[Event], RunPaths, Agent]:
    paths = RunPaths(folder / "x.jsonl")
    source = write_jsonl(folder / "in.jsonl", [{**ROW, "n": n, **row} for n, row in enumerate(rows)])
    plan = write_plan(source, paths.materialized_inputs, PlanOptions(), ["a"])
    agent, events = Agent(), list[Event]()
    finished = await collect(
        paths, plan, Calls({"a": agent}), CollectOptions(**{"concurrency": 8, **options}), events.append
    )
    return finished, events, paths, agent


async def test_good_and_bad_rollouts_go_to_their_files(tmp_path: Path) -> None:
    kinds = ["score", "crash", "refuse", "nan", "none", "judge", "reported", "score"]
    finished, events, paths, _ = await run(tmp_path, [{"do": kind} for kind in kinds])
    assert (finished.requested, finished.scored) == (8, 2)
    assert finished.failed == {
        "agent_error": 1,
        "agent_rejected": 1,
        "agent_bad_reply": 2,
        "judge_failed": 1,
        "agent_reported": 1,
    }
    scored, failures = read_jsonl(paths.output), read_jsonl(paths.failures)
    assert {row["_ng_task_index"] for row in scored} == {0, 7}
    assert {row["_ng_task_index"] for row in failures} == {1, 2, 3, 4, 5, 6}
    assert isinstance(events[0], RunStarted)
    assert events[-1] == finished
    assert sum(isinstance(event, RolloutScored) for event in events) == 2
    assert sum(isinstance(event, RolloutFailed) for event in events) == 6


async def test_a_scored_record_ends_with_the_rows_identity(tmp_path: Path) -> None:
    _, _, paths, _ = await run(tmp_path, [{"skills_ref": {"path": "s"}, "_ng_rollout_id": "mine"}])
    record = read_jsonl(paths.output)[0]
    assert list(record)[:3] == ["responses_create_params", "response", "reward"]
    assert list(record)[3:] == ["_ng_task_index", "_ng_rollout_index", "agent_ref", "skills_ref", "_ng_rollout_id"]


async def test_a_failure_record_has_its_evidence(tmp_path: Path) -> None:
    _, _, paths, _ = await run(tmp_path, [{"do": "refuse"}, {"do": "judge"}])
    refused, judged = sorted(read_jsonl(paths.failures), key=lambda row: row["_ng_task_index"])
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
    assert judged["_ng_failure_class"] == "judge_failed"
    assert judged["response"] == {"output": []}  # kept, so that it can be verified again
    assert "_ng_failure_terminal" not in judged
    assert "gone" in judged["failure"]["message"]


async def test_a_hanging_rollout_meets_its_deadline_and_the_rest_goes_on(tmp_path: Path) -> None:
    rows = [{"do": "hang"}] + [{"do": "score"}] * 5
    finished, _, paths, _ = await run(tmp_path, rows, rollout_timeout_s=0.1)
    assert (finished.scored, finished.failed) == (5, {"rollout_timeout": 1})
    assert read_jsonl(paths.failures)[0]["failure"]["layer"] == "throughput"


async def test_concurrency_is_bounded_and_used(tmp_path: Path) -> None:
    finished, _, _, agent = await run(tmp_path, [{}] * 60, concurrency=7)
    assert finished.scored == 60
    assert agent.most == 7


async def test_no_persist_rows_are_counted_but_not_written(tmp_path: Path) -> None:
    finished, _, paths, _ = await run(tmp_path, [{"do": "silent"}])
    assert finished.scored == 1
    assert paths.output.read_text() == ""


async def test_an_unknown_agent_is_a_config_failure() -> None:
    outcome = await attempt(Calls({"known": Agent()}), {**ROW, "agent_ref": {"name": "knwon"}}, 1.0)
    assert isinstance(outcome, Failed)
    assert outcome.detail.kind == "agent_not_found"
    assert "did you mean 'known'" in outcome.detail.message


async def test_a_scored_attempt_knows_its_reward() -> None:
    outcome = await attempt(Calls({"a": Agent()}), ROW, 1.0)
    assert isinstance(outcome, Scored)
    assert outcome.reward == 1.0


def test_tallies_count_by_agent() -> None:
    tally = Tally()
    tally.take(RolloutScored(0, 0, "a", 1.0, 0.5, 10, 20))
    tally.take(RolloutScored(0, 1, "a", 0.0, 1.5, None, None))
    tally.take(RolloutFailed(1, 0, "b", "model_error", "model_serving", "model", "x", 0.1))
    assert (tally.scored, tally.done, dict(tally.failed)) == (2, 3, {"model_error": 1})
    assert tally.agents["a"].mean_reward == 0.5
    assert tally.agents["b"].mean_reward is None


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


async def test_lines_are_on_disk_within_a_second_without_closing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    async with AppendLog(path) as log:
        log.append(b"{}")
        await asyncio.sleep(0.9)
        assert path.read_text() == "{}\n"


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
        assert not paths.existing()
