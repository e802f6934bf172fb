"""A run that is submitted again, and one in which rollouts fail for good: what waits for the end is still right."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.desk import Desk
from tests.cluster.runs import wait_until
from tests.cluster.slurm_cluster import SlurmCluster
from tests.helpers.jsonl import read_jsonl, write_jsonl

pytestmark = pytest.mark.usefixtures("slurm")


def test_a_resume_that_is_refused_takes_nothing_away(desk: Desk, slurm: SlurmCluster) -> None:
    """The job that merges when the first workers have ended is still there."""
    words = ["--workers", "2", "--chunk-rows", "5"]
    desk.hold()
    first = desk.submit(*words, held_from=0)
    assert first.code == 0, first.err
    refused = desk.submit("--workers", "4", "--chunk-rows", "5", "--resume", "--partition", "nowhere", held_from=0)
    assert refused.code == 2
    assert "invalid partition specified: nowhere" in refused.err
    desk.release()
    wait_until((desk.folder / "x.jsonl.done").exists, "merged")
    assert len(read_jsonl(desk.run)) == 60


def test_two_resumes_at_the_same_moment_add_what_one_would(desk: Desk, slurm: SlurmCluster) -> None:
    words = ["--workers", "2", "--chunk-rows", "5", "--run-after", "blocker"]
    blocked = desk.queue(slurm, "blocker")
    assert desk.submit(*words).code == 0
    waiting = desk.gymnast("status", "x.jsonl")
    assert (waiting.code, "waiting for jobs" in waiting.out) == (0, True)
    more = ["--workers", "5", "--chunk-rows", "5", "--resume", "--json"]
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: desk.submit(*more), range(2)))
    assert [done.code for done in both] == [0, 0], [done.err for done in both]
    assert sorted(done.json()["workers_added"] for done in both) == [0, 3]
    blocked.touch()


def test_rollouts_that_fail_for_good_stop_no_profile(desk: Desk) -> None:
    write_jsonl(desk.folder / "tasks.jsonl", [*desk.rows[:4], {**desk.rows[4], "fails": True}])
    done = desk.submit("--workers", "1", "--wait")
    assert done.code == 1, done.err
    assert len(read_jsonl(desk.run)) == 8
    assert len(read_jsonl(desk.folder / "x_reward_profiling.jsonl")) == 4
