"""Collections that are killed at any moment: a resume finishes what is owed, nothing else, and alters nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.audit import (
    Files,
    assert_complete,
    assert_kept,
    assert_true_so_far,
    complete_lines,
    read_files,
)
from tests.crash.harness import Collection, Policy, Tasks, Victim, collecting, policy_running
from tests.crash.schedules import carry_out

FEW = 10
SCHEDULES = int(os.environ.get("GYMNAST_CRASH_SCHEDULES", FEW))
"""How many schedules are run; a few in everyday tests, some hundred before a release."""
REPORT = os.environ.get("GYMNAST_CRASH_REPORT")
"""Where a line for each schedule is added, if anywhere."""
TASKS = Tasks(20, 3)
ATTEMPTS = 3


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_schedule(seed: int, tmp_path: Path) -> None:
    report = carry_out(seed, tmp_path)
    if REPORT:
        with Path(REPORT).open("a") as stream:
            stream.write(json.dumps(vars(report)) + "\n")


# --- signals ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow_policy() -> Iterator[Policy]:
    with policy_running("--slow-s", "0.2") as policy:
        yield policy


@pytest.fixture
def slower_policy() -> Iterator[Policy]:
    with policy_running("--slow-s", "1") as policy:
        yield policy


def wait_for_lines(collection: Collection, number: int) -> None:
    """Wait until so many rollouts are on disk."""
    deadline = time.monotonic() + 300
    while len(complete_lines(collection.output)) < number:
        assert time.monotonic() < deadline, collection.said()
        assert collection.process is not None
        assert collection.process.poll() is None, collection.said()
        time.sleep(0.01)


def scored_events(collection: Collection) -> set[tuple[int, int]]:
    return {(event["task"], event["rollout"]) for event in collection.events() if event["type"] == "rollout_scored"}


def assert_interrupted(collection: Collection, code: int) -> Files:
    """It ended as interrupted, and what it had told of as scored is kept."""
    assert code == 130, collection.said()
    assert "Traceback" not in collection.said()
    files = read_files(collection.output, ATTEMPTS)
    assert_true_so_far(files, TASKS)
    assert files.owed
    assert files.manifest is not None
    assert files.manifest["state"] == "interrupted"
    assert files.manifest["counts"]["scored"] == len(files.scored)
    assert files.manifest["counts"]["owed"] == len(files.owed)
    assert scored_events(collection) == set(files.scored)
    assert not files.is_done
    return files


def assert_resumes(collection: Collection, before: Files) -> None:
    done = collection.finish("--concurrency", "60")
    assert done.code == 0, done.err
    after = read_files(collection.output, ATTEMPTS)
    assert_complete(after, TASKS)
    assert_kept(before.scored_lines, after)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_storm_of_sigterm_ends_at_once_and_keeps_what_was_scored(
    slow_policy: Policy, tmp_path: Path, workers: str
) -> None:
    arguments = ("--concurrency", "8", "--workers", workers)
    with collecting(tmp_path, TASKS, slow_policy.url, *arguments) as collection:
        process = collection.start()
        wait_for_lines(collection, 5)
        time.sleep(0.2)  # some are scored and not yet on disk
        for _ in range(20):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.005)
        files = assert_interrupted(collection, collection.finish().code)
        assert_resumes(collection, files)


def test_one_sigterm_drains(slow_policy: Policy, tmp_path: Path) -> None:
    with collecting(tmp_path, TASKS, slow_policy.url, "--concurrency", "8") as collection:
        process = collection.start()
        wait_for_lines(collection, 5)
        process.send_signal(signal.SIGTERM)
        done = collection.finish()
        files = assert_interrupted(collection, done.code)
        assert "finishing 8 rollouts in flight" in done.err
        assert not files.failures
        assert_resumes(collection, files)


def test_a_drain_with_nothing_left_over_is_a_complete_run(slower_policy: Policy, tmp_path: Path) -> None:
    with collecting(tmp_path, TASKS, slower_policy.url, "--concurrency", "60") as collection:
        process = collection.start()
        wait_for_lines(collection, 1)
        process.send_signal(signal.SIGTERM)
        assert collection.finish().code == 0
        assert_complete(read_files(collection.output, ATTEMPTS), TASKS)


@pytest.mark.parametrize("arguments", [("--workers", "2"), ("++mcqa.resources_servers.mcqa.runs_in=child",)])
def test_a_sigterm_to_every_process_of_a_job_drains_as_well(
    slow_policy: Policy, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Schedulers signal all processes of a job, not only the first."""
    with collecting(tmp_path, TASKS, slow_policy.url, "--concurrency", "8", *arguments) as collection:
        process = collection.start()
        wait_for_lines(collection, 5)
        others = collection.processes("worker") + collection.processes("child")
        assert others
        for one in others:
            one.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        files = assert_interrupted(collection, collection.finish().code)
        assert not files.failures
        assert_resumes(collection, files)


@pytest.mark.parametrize("after_s", [0.3, 0.8])
def test_a_sigterm_while_starting_leaves_a_run_that_resumes(
    slow_policy: Policy, tmp_path: Path, after_s: float
) -> None:
    with collecting(tmp_path, TASKS, slow_policy.url, "--concurrency", "60", "--workers", "1") as collection:
        process = collection.start()
        time.sleep(after_s)
        process.send_signal(signal.SIGTERM)
        ended = collection.finish()
        assert ended.code in {0, 130, -signal.SIGTERM}
        assert "Traceback" not in ended.err
        assert_resumes(collection, read_files(collection.output, ATTEMPTS))


# --- what is started again --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("victim", "arguments"),
    [
        ("worker", ("--workers", "1")),
        ("worker", ("--workers", "2")),
        ("child", ("++mcqa.resources_servers.mcqa.runs_in=child",)),
    ],
)
def test_a_process_that_is_killed_costs_what_it_was_doing_and_no_more(
    tmp_path: Path, victim: Victim, arguments: tuple[str, ...]
) -> None:
    """While it is started again, rollouts wait; they do not fail one after the other until none is left."""
    tasks = Tasks(100, 4)
    with (
        policy_running("--slow-s", "0.02") as policy,
        collecting(tmp_path, tasks, policy.url, "--concurrency", "8", *arguments) as collection,
    ):
        collection.start()
        wait_for_lines(collection, 5)
        for process in collection.processes(victim):
            process.kill()
        done = collection.finish()
        assert done.code == 0, done.err
        files = read_files(collection.output, ATTEMPTS)
        assert_complete(files, tasks)
        assert {row["failure"]["kind"] for row in files.failures} <= {
            "worker_died",
            "instance_died",
            "environment_unreachable",
        }
        assert 1 <= len(files.failures) <= 40


@pytest.mark.parametrize(
    ("victim", "arguments"),
    [("worker", ("--workers", "1")), ("child", ("++mcqa.resources_servers.mcqa.runs_in=child",))],
)
def test_a_process_that_is_killed_while_it_is_started_again_is_started_once_more(
    slow_policy: Policy, tmp_path: Path, victim: Victim, arguments: tuple[str, ...]
) -> None:
    with collecting(tmp_path, TASKS, slow_policy.url, "--concurrency", "8", *arguments) as collection:
        collection.start()
        wait_for_lines(collection, 5)
        killed: set[int] = set()
        while len(killed) < 2:
            for process in collection.processes(victim):
                if process.pid not in killed:
                    process.kill()
                    killed.add(process.pid)
            time.sleep(0.005)
        done = collection.finish()
        assert done.code == 0, done.err
        assert_complete(read_files(collection.output, ATTEMPTS), TASKS)


# --- two at once -----------------------------------------------------------------------------------------------------


def test_a_second_collector_on_the_same_output_is_refused(slow_policy: Policy, tmp_path: Path) -> None:
    with (
        collecting(tmp_path, TASKS, slow_policy.url, "--concurrency", "3") as first,
        collecting(tmp_path, TASKS, slow_policy.url, "--concurrency", "3") as second,
    ):
        process = first.start()
        wait_for_lines(first, 1)
        process.send_signal(signal.SIGSTOP)  # it must not finish meanwhile
        second.talks_to = "second"
        for refused in (second.finish("--overwrite"), second.finish()):  # the latter resumes
            assert refused.code == 2
            assert f"another process is writing this run: pid {process.pid}" in refused.err
        assert process.poll() is None
        first.kill()
        before = read_files(first.output, ATTEMPTS)
        assert_true_so_far(before, TASKS)
        assert_resumes(first, before)  # a lock does not outlive its holder


# --- between two files -----------------------------------------------------------------------------------------------


def test_a_crash_between_the_larger_plan_and_its_manifest_leaves_a_run_that_counts_right(tmp_path: Path) -> None:
    smaller, larger = Tasks(5, 2), Tasks(5, 4)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with policy_running() as policy:
        with collecting(tmp_path / "a", smaller, policy.url) as collection:
            assert collection.finish().code == 0
        shutil.copytree(tmp_path / "a", tmp_path / "b", dirs_exist_ok=True)
        with collecting(tmp_path / "b", larger, policy.url) as collection:
            collection.invocations = 1
            assert collection.finish("--extend").code == 0
        name = "x_materialized_inputs.jsonl"  # written first
        shutil.copy(tmp_path / "b" / name, tmp_path / "a" / name)
        before = complete_lines(tmp_path / "a" / "x.jsonl")
        with collecting(tmp_path / "a", larger, policy.url) as collection:
            collection.invocations = 1
            done = collection.finish()
            assert done.code == 0, done.err
            files = read_files(collection.output, ATTEMPTS)
            assert_complete(files, larger)
            assert_kept(before, files)
