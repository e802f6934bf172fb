"""Going on with a run: exactly what is missing is run, and a run that is not what it was is refused with the difference
named, unless told how to go on."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gymnast.config import Instance
from gymnast.config.instances import ServerKind
from gymnast.errors import DataError, UserError
from gymnast.rollouts.attempt import Failed, Outcome, Scored
from gymnast.rollouts.changes import PlanChange, compare_plan, diff_plan, diff_values
from gymnast.rollouts.engine import EngineOptions
from gymnast.rollouts.identity import code_digests, comparable_settings
from gymnast.rollouts.observer import RunObserver
from gymnast.rollouts.options import RunOptions
from gymnast.rollouts.plan import Planner, PlanOptions, write_plan
from gymnast.rollouts.prepare import InstancesFor, PreparedRun, prepare_run, remove_run
from gymnast.rollouts.retry import RetryPolicy
from gymnast.rollouts.run import run_prepared
from gymnast.rollouts.runner import WorkItem
from gymnast.rollouts.servers import Servers
from gymnast.store.lock import RunLock
from gymnast.store.manifest import RunState, read_manifest
from gymnast.store.paths import RunPaths
from gymnast.types.events import RunFinished
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.wire.calls import Calls
from gymnast.wire.progress import Signals
from tests.helpers.jsonl import read_jsonl, write_jsonl

RETRY = RetryPolicy(max_attempts=2, first_delay_s=0.001, max_delay_s=0.002)


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": f"q{number}"}, "agent_ref": {"name": "a"}, **fields}


def instance(name: str, kind: ServerKind = "responses_api_agents", /, **given: Any) -> Instance:
    folder = given.pop("directory", None)
    return Instance(name, kind, "thing", "app.py", folder, None, None, None, "auto", given, {}, {})


class Player:
    """Makes attempts as a script says: `scored`, or the kind of a failure, by the rollout's key."""

    def __init__(self, script: Callable[[str], str]) -> None:
        self.signals = Signals()
        self.longest_lag_s = 0.0
        self.ran: list[str] = []
        self._script = script

    async def attempt(self, item: WorkItem, timeout_s: float) -> Outcome:
        self.ran.append(str(item.key))
        await asyncio.sleep(0)
        kind = self._script(str(item.key))
        if kind != "scored":
            return Failed(FailureDetail(FailureKind(kind), Stage.AGENT, "as the script says"), 0.0, 0.0)
        record = {"reward": 1.0, "_ng_task_index": item.key.task, "_ng_rollout_index": item.key.rollout}
        return Scored(orjson.dumps(record), 1.0, 0.0)


class Run:
    """A run in a folder, worked on by one invocation after the other."""

    def __init__(self, folder: Path, rows: list[Any] | str, **plan: Any) -> None:
        self.paths = RunPaths(folder / "x.jsonl")
        self.source = folder / "in.jsonl"
        self.write(rows)
        self.options = RunOptions(
            source=self.source, output=self.paths.output, plan=PlanOptions(**plan), aggregate=False, existing="resume"
        )
        self.said: list[str] = []

    def write(self, rows: list[Any] | str) -> None:
        if isinstance(rows, str):
            self.source.write_text(rows)
        else:
            write_jsonl(self.source, rows)

    def prepare(self, *, instances_for: InstancesFor = lambda _: [], **changes: Any) -> PreparedRun:
        """Get it ready; `plan` holds changed plan options, the rest are changed options of the run."""
        plan = replace(self.options.plan, **changes.pop("plan", {}))
        options = replace(self.options, output=self.paths.output, plan=plan, **changes)
        with RunLock(self.paths.lock):
            return prepare_run(options, ["a", "b"], instances_for)

    async def go(
        self,
        script: Callable[[str], str] | str = "scored",
        *,
        retry_failed: bool | set[str] = False,
        retry: RetryPolicy = RETRY,
        **changes: Any,
    ) -> tuple[list[str], RunFinished]:
        """One invocation, to its end: the rollouts it ran, and how it ended."""
        prepared = self.prepare(**changes)
        player = Player(script if callable(script) else lambda _: script)
        engine = EngineOptions(concurrency=4, retry=retry)
        options = replace(self.options, engine=engine, retry_failed=retry_failed)
        servers = Servers(player, Calls({}), ["a", "b"], [])
        finished = await run_prepared(prepared, servers, options, RunObserver(say=self.said.append))
        assert finished.requested == finished.scored + sum(finished.failed.values()) + finished.owed
        self.paths = prepared.paths
        return sorted(player.ran), finished

    def refused(self, **changes: Any) -> UserError:
        before = contents(self.paths)
        with pytest.raises(UserError) as caught:
            self.prepare(**changes)
        assert contents(self.paths) == before  # nothing was touched
        return caught.value

    @property
    def scored(self) -> list[str]:
        return [key_text(line) for line in read_jsonl(self.paths.output)]

    @property
    def failures(self) -> list[dict[str, Any]]:
        return read_jsonl(self.paths.failures)


def key_text(line: dict[str, Any]) -> str:
    return f"{line['_ng_task_index']}:{line['_ng_rollout_index']}"


def contents(paths: RunPaths) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths.existing_files()}


def scored_lines(*keys: str) -> list[dict[str, Any]]:
    """Records as somebody else may have written them."""
    return [{"reward": 1, "_ng_task_index": task, "_ng_rollout_index": rollout} for task, rollout in map(split, keys)]


def split(key: str) -> tuple[int, int]:
    task, rollout = key.split(":")
    return int(task), int(rollout)


def fail_once(paths: RunPaths, key: str, **fields: Any) -> None:
    """A line of the failures file, as somebody else may have written it."""
    task, rollout = split(key)
    with paths.failures.open("ab") as stream:
        stream.write(orjson.dumps({**fields, "_ng_task_index": task, "_ng_rollout_index": rollout}) + b"\n")


# --- the same run ----------------------------------------------------------------------------------------------------


async def test_a_resume_runs_exactly_what_is_missing(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1), row(2)], repeats=2)
    assert (await run.go())[0] == ["0:0", "0:1", "1:0", "1:1", "2:0", "2:1"]
    lines = run.paths.output.read_bytes().splitlines(keepends=True)
    run.paths.output.write_bytes(b"".join(lines[:2] + lines[4:]))
    missing = sorted(key_text(json.loads(line)) for line in lines[2:4])
    ran, finished = await run.go()
    assert ran == missing
    assert (finished.scored, finished.owed, finished.state) == (6, 0, "complete")
    assert len(set(run.scored)) == len(run.scored) == 6


async def test_a_complete_run_is_left_alone_by_a_resume(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1)])
    await run.go()
    before = run.paths.output.read_bytes()
    ran, finished = await run.go()
    assert (ran, finished.state) == ([], "complete")
    assert run.paths.output.read_bytes() == before
    assert run.paths.done.exists()


async def test_every_invocation_is_in_the_manifest(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1)])
    await run.go()
    first = read_manifest(run.paths.manifest)
    await run.go()
    second = read_manifest(run.paths.manifest)
    assert first is not None
    assert second is not None
    assert second.run_id == first.run_id
    assert second.created_at == first.created_at
    assert [one.forced for one in second.invocations] == [False, False]
    assert [one.ended_as for one in second.invocations] == [RunState.COMPLETE, RunState.COMPLETE]


async def test_while_it_is_worked_on_again_a_run_is_not_done(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go()
    assert run.paths.done.exists()
    prepared = run.prepare()
    assert not run.paths.done.exists()
    assert prepared.manifest.state is RunState.RUNNING


def test_a_plan_without_any_output_yet_is_gone_on_with(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    first = run.prepare()
    assert run.prepare().manifest.run_id == first.manifest.run_id


async def test_a_torn_output_is_repaired_and_only_the_torn_rollout_runs_again(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1), row(2)])
    await run.go()
    lost = run.scored[-1]
    run.paths.output.write_bytes(run.paths.output.read_bytes()[:-10])
    ran, finished = await run.go()
    assert (ran, finished.scored) == ([lost], 3)
    assert run.said == ["repaired: x.jsonl: 1 damaged lines were moved to x.jsonl.damaged"]


def test_a_key_order_or_spacing_that_differs_is_not_a_change(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0, x=1), row(1, x=2)])
    run.prepare()
    rows = read_jsonl(run.paths.materialized_inputs)
    write_jsonl(run.paths.materialized_inputs, [dict(reversed(one.items())) for one in rows])
    run.prepare()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    repeats=st.integers(1, 3),
    data=st.data(),
)
def test_for_any_rows_and_any_part_done_a_resume_runs_exactly_the_rest(
    tmp_path: Path, numbers: list[int], repeats: int, data: st.DataObject
) -> None:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    run = Run(folder, [row(number) for number in numbers], repeats=repeats)  # equal numbers are one task
    run.prepare()
    planned = [key_text(one) for one in read_jsonl(run.paths.materialized_inputs)]
    done = data.draw(st.lists(st.sampled_from(planned), unique=True), "scored before")
    rest = [key for key in planned if key not in done]
    lost = data.draw(st.lists(st.sampled_from(rest), unique=True) if rest else st.just([]), "failed before")
    write_jsonl(run.paths.output, scored_lines(*done))
    for key in lost:
        fail_once(run.paths, key, _ng_failure_class="cancelled", _ng_failure_terminal=True)
    ran, finished = asyncio.run(run.go())
    assert ran == sorted(set(planned) - set(done) - set(lost))
    assert Counter(run.scored) == Counter(set(planned) - set(lost))
    assert (finished.requested, finished.failed) == (len(planned), {"cancelled": len(lost)} if lost else {})


# --- another run: refused, with the difference -----------------------------------------------------------------------

CHANGED = "inputs or settings changed since this run started:"
WAYS = "--fork runs the changed plan as a new run, --force continues with the old plan unchanged"


async def test_changed_rows_are_named_with_the_value_that_changed(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0, answer=1), row(1, answer=2)], repeats=2)
    await run.go()
    run.write([row(0, answer=1), row(1, answer=3)])
    error = run.refused()
    assert error.what == f"{CHANGED}\n  2 rollouts changed\n  1:0 answer: 2 -> 3\n  1:1 answer: 2 -> 3"
    assert (error.where, error.next) == (str(run.paths.output), WAYS)


def test_a_key_that_comes_or_goes_is_a_change(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0, old=1)])
    run.prepare()
    run.write([row(0, new=[1, 2])])
    assert "0:0 old: 1 -> (absent); new: (absent) -> [1,2]" in run.refused().what


def test_many_changes_are_counted_and_the_first_are_shown(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(n, a=n, b=n, c=n, d=n) for n in range(30)])
    run.prepare()
    run.write([row(n, a=-1, b=-1, c=-1, d="x" * 100) for n in range(30)])
    lines = run.refused().what.splitlines()
    assert lines[1] == "  30 rollouts changed"
    assert len(lines) == 7
    assert lines[2] == "  0:0 a: 0 -> -1; b: 0 -> -1; c: 0 -> -1 …"


def test_rows_that_are_gone_are_named(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1), row(2)])
    run.prepare()
    run.write([row(0), row(1)])
    error = run.refused()
    assert "1 rollouts removed\n  2:0 is no longer planned" in error.what
    assert error.next == WAYS


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"repeats": 2}, {"repeats": 1}, "2 rollouts removed"),
        ({"limit": 2}, {"limit": 1}, "1 rollouts removed"),
        ({}, {"limit": 1}, "1 rollouts removed"),
        ({}, {"params": {"temperature": 0.5}}, "responses_create_params.temperature: (absent) -> 0.5"),
        ({}, {"params": {"temperature": 0.5}}, "plan.params.temperature: (absent) -> 0.5"),
        ({"params": {"temperature": 0.5}}, {"params": {"temperature": 0.7}}, "plan.params.temperature: 0.5 -> 0.7"),
        ({}, {"add_seed": True}, "plan.add_seed: false -> true"),
        ({}, {"skills": {"path": "s", "hash": "1"}}, 'plan.skills: null -> {"path":"s","hash":"1"}'),
    ],
)
def test_changed_options_of_the_plan_are_named(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], said: str
) -> None:
    run = Run(tmp_path, [row(0), row(1)], **before)
    run.prepare()
    error = run.refused(plan=after)
    assert error.what.startswith("inputs or settings changed since this run started:\n")
    assert said in error.what
    assert error.next == WAYS


@pytest.mark.parametrize(
    ("after", "said"), [({"repeats": 3}, "4 rollouts added"), ({"limit": None}, "1 rollouts added")]
)
def test_more_of_the_same_is_refused_too_and_extending_is_offered(
    tmp_path: Path, after: dict[str, Any], said: str
) -> None:
    run = Run(tmp_path, [row(0), row(1), row(2)], limit=2)
    run.prepare()
    error = run.refused(plan=after)
    assert said in error.what
    assert error.next == f"--extend adds what is new to this run; {WAYS}"


def test_changed_settings_of_instances_are_named_at_any_depth(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    run.prepare(instances_for=lambda _: [instance("a", max_steps=5, judge={"prompt": "p", "depth": {"x": 1}})])
    error = run.refused(
        instances_for=lambda _: [instance("a", max_steps=6, judge={"prompt": "p", "depth": {"x": 2}}, more=True)]
    )
    assert error.what == (
        "inputs or settings changed since this run started:\n"
        "  a.settings.max_steps: 5 -> 6\n"
        "  a.settings.judge.depth.x: 1 -> 2\n"
        "  a.settings.more: (absent) -> true"
    )
    assert error.next == WAYS


def test_another_implementation_or_another_instance_is_a_change(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    run.prepare(instances_for=lambda _: [instance("a"), instance("env", "resources_servers")])
    other = replace(instance("a"), implementation="other")
    said = run.refused(instances_for=lambda _: [other, instance("env2", "resources_servers")]).what
    assert 'a.implementation: "responses_api_agents/thing" -> "responses_api_agents/other"' in said
    assert "env: {" in said
    assert "env2: (absent) -> {" in said


def test_only_the_first_ten_changed_settings_are_shown(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    run.prepare(instances_for=lambda _: [instance("a", **{f"s{n}": 0 for n in range(15)})])
    said = run.refused(instances_for=lambda _: [instance("a", **{f"s{n}": 1 for n in range(15)})]).what
    assert said.count("0 -> 1") == 10
    assert "… and 5 more" in said


@pytest.mark.parametrize(
    "name",
    [
        *("openai_base_url", "base_url", "model_timeout_s", "timeout_s", "session_ttl_s", "max_attempts"),
        *("max_concurrent_requests", "max_rollouts", "max_sessions", "extra_headers", "policy_api_key", "auth_token"),
    ],
)
def test_circumstances_and_secrets_may_change(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path, [row(0)])
    run.prepare(instances_for=lambda _: [instance("a", **{name: "before"})])
    assert b"before" not in run.paths.manifest.read_bytes()
    run.prepare(instances_for=lambda _: [instance("a", **{name: "after"})])


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(1.5),
        pytest.param(2**53),
        pytest.param({"1": {"2": [None, True, "ü"]}}),
        pytest.param([]),
        float("inf"),
    ],
)
def test_settings_that_did_not_change_are_not_a_difference(tmp_path: Path, value: Any) -> None:
    run = Run(tmp_path, [row(0)])
    run.prepare(instances_for=lambda _: [instance("a", thing=value)])
    run.prepare(instances_for=lambda _: [instance("a", thing=value)])


def test_skills_with_a_date_as_their_version_are_not_a_difference(tmp_path: Path) -> None:
    skills = {"path": "s", "hash": "1", "skills": [{"name": "n", "version": dt.date(2030, 1, 2)}]}
    run = Run(tmp_path, [row(0)], skills=skills)
    run.prepare()
    run.prepare()


def test_changed_code_is_named_and_caches_and_tests_are_not_code(tmp_path: Path) -> None:
    code = tmp_path / "environment"
    (code / "tests").mkdir(parents=True)
    (code / ".venv").mkdir()
    (code / "app.py").write_text("x = 1\n")
    run = Run(tmp_path, [row(0)])
    instances = {"instances_for": lambda _: [instance("a"), instance("env", "resources_servers", directory=code)]}
    run.prepare(**instances)
    (code / "tests" / "test_app.py").write_text("assert True\n")
    (code / ".venv" / "lib.py").write_text("y = 1\n")
    (code / "notes.md").write_text("notes\n")
    run.prepare(**instances)
    (code / "app.py").write_text("x = 2\n")
    assert run.refused(**instances).what == f"{CHANGED}\n  the code of 'env' changed"
    (code / "app.py").write_text("x = 1\n")
    run.prepare(**instances)
    (code / "more.py").write_text("")
    assert "the code of 'env' changed" in run.refused(**instances).what


def test_a_source_that_is_gone_or_bad_is_an_error_and_the_run_stays(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    run.prepare()
    run.write("nonsense\n")
    assert "1 bad row" in run.refused().what
    run.source.unlink()
    assert "cannot read" in run.refused().what


# --- extending -------------------------------------------------------------------------------------------------------


async def test_extending_with_more_repeats_runs_only_the_new_ones(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1), row(0)])
    await run.go(lambda key: "cancelled" if key == "1:0" else "scored")
    before = run.paths.output.read_bytes()
    ran, finished = await run.go(on_change="extend", plan={"repeats": 3})
    assert ran == ["0:2", "0:3", "0:4", "0:5", "1:1", "1:2"]
    assert (finished.requested, finished.scored, finished.failed, finished.owed) == (9, 8, {"cancelled": 1}, 0)
    assert run.paths.output.read_bytes().startswith(before)
    kept = read_manifest(run.paths.manifest)
    assert kept is not None
    assert kept.plan["rows"] == 9
    assert len(kept.invocations) == 2


async def test_extending_with_more_rows_runs_only_the_new_ones(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1)], repeats=2)
    _, first = await run.go(lambda key: "scored" if key != "1:1" else "cancelled")
    run.write([row(0), row(1), row(2), row(3)])
    ran, finished = await run.go(on_change="extend")
    assert ran == ["2:0", "2:1", "3:0", "3:1"]
    assert (first.requested, finished.requested, finished.scored) == (4, 8, 7)
    assert (await run.go())[0] == []  # and then it is the larger run


async def test_extending_what_did_not_change_is_a_resume(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go()
    assert (await run.go(on_change="extend"))[0] == []


async def test_extending_is_refused_when_more_than_that_changed(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1)])
    await run.go()
    run.write([row(0), row(1, x=1), row(2)])
    error = run.refused(on_change="extend")
    assert error.what.startswith("--extend only adds rollouts, but more than that changed:\n")
    assert "1 rollouts added, 1 rollouts changed" in error.what
    assert error.next == WAYS
    run.write([row(0), row(1), row(2)])
    settings_changed = run.refused(on_change="extend", instances_for=lambda _: [instance("a", x=1)])
    assert "a: (absent) -> " in settings_changed.what


async def test_extending_by_the_rows_of_another_agent_takes_its_instances_along(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    run.prepare()
    run.write([row(0), row(1, agent_ref={"name": "b"})])
    prepared = run.prepare(on_change="extend")
    assert prepared.agents == {"a": 1, "b": 1}
    assert (await run.go())[0] == ["0:0", "1:0"]


async def test_extending_by_the_rows_of_another_agent_is_not_a_change_of_settings(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    needed = {"instances_for": lambda names: [instance(name, x=1) for name in names]}
    run.prepare(**needed)
    run.write([row(0), row(1, agent_ref={"name": "b"})])
    run.prepare(on_change="extend", **needed)
    run.prepare(**needed)


# --- forking ---------------------------------------------------------------------------------------------------------


async def test_a_fork_takes_the_scored_rollouts_of_unchanged_rows_along(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1), row(2)], repeats=2)
    await run.go(lambda key: "cancelled" if key == "2:1" else "scored")
    old = contents(run.paths)
    run.write([row(0), row(1, x=1), row(2), row(3)])
    prepared = run.prepare(on_change="fork")
    assert prepared.paths.output.name == "x_fork_1.jsonl"
    assert prepared.notes == [
        f"the changed run continues as {prepared.paths.output}",
        "3 scored rollouts of unchanged rows were carried over",
    ]
    assert contents(run.paths) == old
    first = read_manifest(run.paths.manifest)
    assert first is not None
    assert prepared.manifest.run_id != first.run_id
    run.paths = prepared.paths
    ran, finished = await run.go()
    assert ran == ["1:0", "1:1", "2:1", "3:0", "3:1"]
    assert (finished.scored, finished.requested, finished.state) == (8, 8, "complete")


async def test_a_fork_with_other_settings_takes_nothing_along(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1)])
    await run.go()
    ran, finished = await run.go(on_change="fork", instances_for=lambda _: [instance("a", x=1)])
    assert (ran, finished.scored) == (["0:0", "1:0"], 2)
    assert Path(finished.output).name == "x_fork_1.jsonl"


async def test_forks_are_numbered_and_a_run_that_did_not_change_is_not_forked(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go()
    assert (await run.go(on_change="fork"))[1].output == str(run.paths.output)
    names = []
    for number in (1, 2):
        run.write([row(0, x=number)])
        names.append(run.prepare(on_change="fork").paths.output.name)
    assert names == ["x_fork_1.jsonl", "x_fork_2.jsonl"]


async def test_a_fork_takes_no_damaged_lines_along(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1)])
    await run.go()
    lost = run.scored[-1]
    run.paths.output.write_bytes(run.paths.output.read_bytes()[:-10])
    run.write([row(0), row(1), row(2)])
    ran, finished = await run.go(on_change="fork")
    assert ran == sorted([lost, "2:0"])
    assert finished.scored == len(run.scored) == 3


async def test_a_fork_that_could_not_begin_leaves_nothing_behind(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1)])
    await run.go()
    run.write([row(0), row(1), row(2)])
    prepared = run.prepare(on_change="fork")
    remove_run(prepared)
    assert not prepared.paths.existing_files()


# --- forcing ---------------------------------------------------------------------------------------------------------


async def test_forcing_goes_on_with_the_old_plan_even_if_its_source_is_gone(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1), row(2)])
    await run.go(lambda key: "cancelled" if key == "2:0" else "scored")
    write_jsonl(run.paths.output, [one for one in read_jsonl(run.paths.output) if one["_ng_task_index"] != 1])
    plan = run.paths.materialized_inputs.read_bytes()
    run.source.unlink()
    ran, finished = await run.go(on_change="force", instances_for=lambda _: [instance("a", x=1)])
    assert (ran, finished.scored, finished.failed) == (["1:0"], 2, {"cancelled": 1})
    assert run.paths.materialized_inputs.read_bytes() == plan
    kept = read_manifest(run.paths.manifest)
    assert kept is not None
    assert [one.forced for one in kept.invocations] == [False, True]


async def test_forcing_does_not_make_the_change_the_rule(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go()
    changed: dict[str, Any] = {"instances_for": lambda _: [instance("a", x=1)]}
    await run.go(on_change="force", **changed)
    assert "a: (absent)" in run.refused(**changed).what


# --- runs of NeMo Gym ------------------------------------------------------------------------------------------------


def foreign_run(folder: Path, rows: list[dict[str, Any]], repeats: int) -> Run:
    """A run as NeMo Gym leaves it: no manifest, its own order of keys, indexes that are spaced."""
    run = Run(folder, rows, repeats=repeats)
    write_plan(run.source, run.paths.materialized_inputs, run.options.plan, None)
    planned = read_jsonl(run.paths.materialized_inputs)
    write_jsonl(run.paths.materialized_inputs, [dict(sorted(one.items())) for one in planned])
    return run


async def test_a_run_of_nemo_gym_is_gone_on_with(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0), row(1)], 2)
    scored = [*scored_lines("0:1"), {"_ng_rollout_index": 0, "_ng_task_index": 1, "x": 1, "reward": 0.5}]
    write_jsonl(run.paths.output, scored)
    prepared = run.prepare()
    assert prepared.agents == {"a": 4}
    ran, finished = await run.go()
    assert ran == ["0:0", "1:1"]
    assert (finished.requested, finished.scored, finished.state) == (4, 4, "complete")
    assert read_jsonl(run.paths.output)[:2] == scored
    kept = read_manifest(run.paths.manifest)
    assert kept is not None
    assert kept.state is RunState.COMPLETE


async def test_failures_that_nemo_gym_noted_count_as_attempts(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0), row(1), row(2)], 1)
    fail_once(run.paths, "0:0", _ng_failure_class="timeout")
    fail_once(run.paths, "1:0", _ng_failure_class="timeout")
    fail_once(run.paths, "1:0", _ng_failure_class="judge_failed")
    fail_once(run.paths, "2:0", _ng_failure_class="fatal", _ng_failure_terminal=True)
    ran, finished = await run.go("agent_error")
    assert ran == ["0:0"]  # the others used their two attempts up, or were final
    assert finished.failed == {"agent_error": 1, "judge_failed": 1, "fatal": 1}


async def test_rows_of_newer_nemo_gyms_that_are_not_attempts_do_not_count(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0), row(1)], 1)
    for mark in ("_ng_omitted_rollout", "_ng_unrouted_run_error", "_ng_omitted_rollout"):
        fail_once(run.paths, "0:0", _ng_failure_class="kill_shaped", **{mark: True})
    ran, finished = await run.go()
    assert "0:0" in ran
    assert (finished.failed, finished.owed, finished.state) == ({}, 0, "complete")


async def test_attempts_are_numbered_on_when_failures_are_retried(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go("model_timeout")
    await run.go("model_error", retry_failed=True)
    numbers = [orjson.loads(line)["_ng_attempt_index"] for line in run.paths.failures.read_bytes().splitlines()]
    assert numbers == list(range(len(numbers)))


def test_a_foreign_run_with_other_rows_is_refused(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0), row(1)], 1)
    run.write([row(0), row(7)])
    assert 'responses_create_params.input: "q1" -> "q7"' in run.refused().what


async def test_a_foreign_run_can_be_extended(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0)], 1)
    write_jsonl(run.paths.output, scored_lines("0:0"))
    ran, finished = await run.go(on_change="extend", plan={"repeats": 3})
    assert (ran, finished.scored) == (["0:1", "0:2"], 3)


def test_a_foreign_plan_without_indexes_is_refused_in_words(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0)], 1)
    write_jsonl(run.paths.materialized_inputs, [row(0)])
    with pytest.raises(DataError, match="no task and rollout index"):
        run.prepare()


def test_a_foreign_plan_that_is_torn_is_refused_in_words(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0), row(1)], 1)
    run.paths.materialized_inputs.write_bytes(run.paths.materialized_inputs.read_bytes()[:-20])
    with pytest.raises(UserError):
        run.prepare()


def test_a_foreign_run_that_could_not_be_gone_on_with_keeps_its_plan(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0)], 1)
    plan = run.paths.materialized_inputs.read_bytes()
    remove_run(run.prepare())  # e.g. because its endpoint did not answer
    assert run.paths.materialized_inputs.read_bytes() == plan


def test_the_settings_of_an_adopted_run_are_guarded_from_then_on(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0)], 1)
    run.prepare(instances_for=lambda _: [instance("a", max_steps=5)])
    assert "max_steps: 5 -> 6" in run.refused(instances_for=lambda _: [instance("a", max_steps=6)]).what


def test_records_of_rollouts_that_are_not_planned_are_refused(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0), row(1)], 1)
    write_jsonl(run.paths.output, scored_lines("0:0", "1:0", "2:0", "3:0", "4:0"))
    with pytest.raises(DataError, match="3 records are of rollouts that are not in the materialized inputs: 2:0, 3:0"):
        run.prepare()


# --- failures from before --------------------------------------------------------------------------------------------


async def test_attempts_add_up_over_invocations(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    stingy = RetryPolicy(max_attempts=3, budget_share=0.0, first_delay_s=0.001)
    run.prepare()
    kept = read_manifest(run.paths.manifest)
    assert kept is not None
    fail_once(run.paths, "0:0", failure={"kind": "model_error", "run_id": kept.run_id})
    ran, finished = await run.go("model_timeout", retry=stingy)
    assert (ran, finished.failed) == (["0:0", "0:0"], {"model_timeout": 1})
    assert [line.get("_ng_attempt_index") for line in run.failures] == [None, 1, 2]
    assert (await run.go("model_timeout", retry=stingy))[0] == []


async def test_failures_of_another_run_never_use_up_attempts(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1)])
    for _ in range(5):
        fail_once(run.paths, "0:0", failure={"kind": "model_error", "run_id": "another"}, _ng_failure_terminal=True)
    stale = run.paths.failures.read_bytes()
    run.paths.failures.unlink()
    run.prepare()
    run.paths.failures.write_bytes(stale)
    ran, finished = await run.go()
    assert (ran, finished.scored, finished.failed) == (["0:0", "1:0"], 2, {})
    assert run.paths.failures.read_bytes() == stale


async def test_failures_of_what_is_scored_do_not_matter(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go()
    fail_once(run.paths, "0:0", _ng_failure_class="late", _ng_failure_terminal=True)
    ran, finished = await run.go()
    assert (ran, finished.scored, finished.failed, finished.owed) == ([], 1, {}, 0)


async def test_what_failed_for_good_is_left_alone_unless_asked(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1), row(2)])
    script = {"0:0": "cancelled", "1:0": "model_timeout", "2:0": "scored"}
    _, finished = await run.go(lambda key: script[key])
    assert finished.failed == {"cancelled": 1, "model_timeout": 1}
    assert (await run.go())[0] == []
    ran, finished = await run.go(retry_failed=True)
    assert ran == ["0:0", "1:0"]
    assert (finished.scored, finished.failed, finished.state) == (3, {}, "complete")


async def test_failing_again_after_being_asked_counts_once(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go("model_timeout")
    ran, finished = await run.go("model_error", retry_failed=True)
    assert (ran, finished.failed) == (["0:0", "0:0"], {"model_error": 1})
    ran, finished = await run.go()
    assert (ran, finished.failed, finished.owed) == ([], {"model_error": 1}, 0)


async def test_fewer_attempts_than_were_made_count_once(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    generous = RetryPolicy(max_attempts=6, first_delay_s=0.001, max_delay_s=0.002)
    await run.go("model_timeout", retry=generous)
    _, finished = await run.go(retry=RETRY)
    assert finished.failed == {"model_timeout": 1}


async def test_only_failures_of_some_kinds_are_tried_again(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1)])
    await run.go(lambda key: "cancelled" if key == "0:0" else "verifier_error")
    ran, finished = await run.go(retry_failed={"verifier_error"})
    assert ran == ["1:0"]
    assert finished.failed == {"cancelled": 1}


async def test_the_kind_of_the_last_failure_decides_what_is_tried_again(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go("verifier_bad_reply")
    await run.go("agent_rejected", retry_failed=True)
    ran, _ = await run.go(retry_failed={"agent_rejected"})
    assert ran == ["0:0"]


async def test_a_failures_file_with_a_line_that_is_half_another_is_repaired(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    run.prepare()
    run.paths.failures.write_text('{"failure":{"kind":"mod{"_ng_task_index":0,"_ng_rollout_index":0}\n')
    assert (await run.go())[0] == ["0:0"]


async def test_a_failure_record_whose_author_has_a_field_of_that_name_does_not_stop_the_run(tmp_path: Path) -> None:
    run = foreign_run(tmp_path, [row(0)], 1)
    fail_once(run.paths, "0:0", failure="the sandbox broke", _ng_failure_class="sandbox")
    assert (await run.go())[0] == ["0:0"]


# --- bad rows --------------------------------------------------------------------------------------------------------


async def test_skipped_bad_rows_are_failures_recorded_once_over_several_resumes(tmp_path: Path) -> None:
    text = "\n".join([json.dumps(row(0)), "nonsense", json.dumps(row(1)), '{"no": "params"}']) + "\n"
    run = Run(tmp_path, text, skip_bad_rows=True, repeats=2)
    ran, finished = await run.go()
    assert ran == ["0:0", "0:1", "2:0", "2:1"]
    assert (finished.requested, finished.scored, finished.failed, finished.owed) == (8, 4, {"bad_row": 4}, 0)
    for _ in range(2):
        ran, finished = await run.go()
        assert (ran, finished.failed) == ([], {"bad_row": 4})
    assert sorted(map(key_text, run.failures)) == ["1:0", "1:1", "3:0", "3:1"]
    assert "input line 2: not JSON" in run.failures[0]["failure"]["message"]
    assert run.failures[0]["failure"]["layer"] == "data_schema"


@pytest.mark.parametrize("bad", ["", "nonsense"])
async def test_two_bad_rows_that_are_equal_are_both_settled(tmp_path: Path, bad: str) -> None:
    run = Run(tmp_path, "\n".join([json.dumps(row(0)), bad, bad]) + "\n", skip_bad_rows=True)
    _, finished = await run.go()
    assert (finished.scored, finished.owed, finished.state) == (1, 0, "complete")


async def test_a_bad_row_does_not_take_the_place_of_a_row_with_an_index_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path, "nonsense\n" + json.dumps(row(0, _ng_task_index=0)) + "\n", skip_bad_rows=True)
    ran, finished = await run.go()
    assert (ran, finished.scored, finished.failed) == (["0:0"], 1, {"bad_row": 1})


async def test_a_bad_row_that_was_fixed_runs_when_the_run_is_extended(tmp_path: Path) -> None:
    run = Run(tmp_path, json.dumps(row(0)) + "\nnonsense\n" + json.dumps(row(2)) + "\n", skip_bad_rows=True)
    await run.go()
    run.write([row(0), row(1), row(2)])
    ran, finished = await run.go(on_change="extend")
    assert (ran, finished.scored, finished.failed) == (["1:0"], 3, {})


# --- names that are taken --------------------------------------------------------------------------------------------


async def test_an_earlier_run_is_refused_with_ways_on(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go()
    error = run.refused(existing="refuse")
    assert "x.jsonl" in error.what
    assert error.next is not None
    for way in ("--resume", "--overwrite", "--output"):
        assert way in error.next


async def test_overwriting_replaces_the_earlier_run(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0), row(1)])
    _, first = await run.go(lambda key: "cancelled" if key == "0:0" else "scored")
    before = read_manifest(run.paths.manifest)
    run.write([row(5)])
    ran, finished = await run.go(existing="overwrite")
    after = read_manifest(run.paths.manifest)
    assert (ran, finished.requested, finished.failed) == (["0:0"], 1, {})
    assert first.failed == {"cancelled": 1}
    assert before is not None
    assert after is not None
    assert before.run_id != after.run_id


async def test_setting_aside_keeps_the_earlier_run_in_a_folder(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go()
    old = contents(run.paths)
    prepared = run.prepare(existing="set_aside")
    aside = tmp_path / "x_previous_1"
    assert prepared.notes == [f"an earlier run under this name was moved to {aside}"]
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == old
    assert (await run.go())[0] == ["0:0"]


def test_an_output_without_a_plan_cannot_be_gone_on_with_and_is_set_aside(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    write_jsonl(run.paths.output, [{"reward": 1.0}])
    prepared = run.prepare(existing="resume_if_planned")
    assert "moved to" in prepared.notes[0]
    assert read_jsonl(tmp_path / "x_previous_1" / "x.jsonl") == [{"reward": 1.0}]


@pytest.mark.parametrize("text", ["nonsense\n", ""])
async def test_overwriting_with_an_input_that_cannot_be_planned_keeps_the_earlier_run(
    tmp_path: Path, text: str
) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go()
    run.write(text)
    run.refused(existing="overwrite")


def test_a_new_run_that_could_not_begin_is_taken_back(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    prepared = run.prepare()
    prepared.paths.logs.mkdir()
    remove_run(prepared)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_the_logs_of_a_run_that_could_not_begin_stay_and_do_not_block_the_next(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    prepared = run.prepare()
    log = prepared.paths.logs / "mcqa.log"
    log.parent.mkdir()
    log.write_text("ERROR: No matching distribution found\n")
    remove_run(prepared)
    assert log.exists()
    assert run.prepare().is_new


async def test_a_run_that_began_is_never_taken_back(tmp_path: Path) -> None:
    run = Run(tmp_path, [row(0)])
    await run.go()
    before = {**contents(run.paths)}
    remove_run(run.prepare())
    assert contents(run.paths).keys() >= before.keys() - {run.paths.done.name}
    assert run.paths.output.read_bytes() == before["x.jsonl"]


# --- differences, on their own ---------------------------------------------------------------------------------------


def test_differences_are_listed_with_their_paths() -> None:
    before = {"same": 1, "a": 1, "deep": {"x": 1, "y": {"z": 2}}, "gone": None, "kind": {"k": 1}}
    after = {"same": 1, "a": 2, "deep": {"x": 1, "y": {"z": 3}}, "new": [1], "kind": 5}
    assert diff_values(before, after) == [
        "a: 1 -> 2",
        "deep.y.z: 2 -> 3",
        "gone: null -> (absent)",
        'kind: {"k":1} -> 5',
        "new: (absent) -> [1]",
    ]
    assert diff_values(before, before) == []


def test_long_values_are_cut() -> None:
    (line,) = diff_values({"x": "a" * 100}, {"x": "b" * 100})
    assert len(line) < 130
    assert line.count("…") == 2


trees: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
mappings = st.dictionaries(st.text(max_size=2), trees, max_size=4)


@given(mappings, mappings)
def test_there_is_a_difference_exactly_where_values_differ(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert bool(diff_values(before, after)) == (before != after)
    assert len(diff_values(before, after)) == len(diff_values(after, before))
    assert diff_values(before, orjson.loads(orjson.dumps(before))) == []


def test_plans_are_compared_by_bytes_first_and_then_by_row(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", [row(0), row(1), row(2)])
    plan = tmp_path / "plan.jsonl"
    write_plan(source, plan, PlanOptions(), None)
    assert compare_plan(plan, Planner(source, PlanOptions(), None)).is_empty
    assert not compare_plan(plan, Planner(source, PlanOptions(limit=2), None)).is_empty
    assert not compare_plan(plan, Planner(source, PlanOptions(repeats=2), None)).is_empty
    larger = diff_plan(plan, Planner(source, PlanOptions(repeats=2), None))
    assert (larger.added, larger.removed, larger.changed, larger.is_extension) == (3, 0, 0, True)
    smaller = diff_plan(plan, Planner(source, PlanOptions(limit=1), None))
    assert (smaller.added, smaller.removed, smaller.changed, smaller.is_extension) == (0, 2, 0, False)
    assert smaller.describe() == ["2 rollouts removed", "1:0 is no longer planned", "2:0 is no longer planned"]
    assert PlanChange().describe() == []


# --- identity, on its own --------------------------------------------------------------------------------------------


def test_what_determines_a_result_is_named_by_instance_and_secrets_are_masked() -> None:
    model = instance(
        "policy",
        "responses_api_models",
        model="m",
        openai_base_url="http://h/v1",
        openai_api_key="k",
        deep={"api_key": "s"},
    )
    found = comparable_settings([model], RunOptions(plan=PlanOptions(params={"top_p": 1})))
    assert found == {
        "plan": {"params": {"top_p": 1}, "add_seed": False, "template": None, "skills": None, "tools": {}},
        "policy": {
            "implementation": "responses_api_models/thing",
            "settings": {"model": "m", "deep": {}},
        },
    }


def test_code_digests_follow_names_and_contents(tmp_path: Path) -> None:
    def digest(files: dict[str, str]) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return code_digests([instance("a", directory=folder)])["a"]

    same = digest({"app.py": "x", "sub/more.py": "y"})
    assert same == digest({"sub/more.py": "y", "app.py": "x", "data.json": "{}"})
    others = [{"app.py": "x"}, {"app.py": "x", "sub/more.py": "z"}, {"app.py": "x", "sub/other.py": "y"}]
    assert len({same, *map(digest, others)}) == 4
    assert code_digests([instance("elsewhere")]) == {}
