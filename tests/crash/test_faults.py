"""An endpoint that is slow, silent, absent or lying: each costs time or attempts, and none of them becomes a reward."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.audit import Files, assert_complete, assert_true_so_far, read_files
from tests.crash.faulty_policy import FAULTS, GOOD, LIES
from tests.crash.harness import Collection, Tasks, collecting, policy_running
from tests.helpers.commands import Outcome

TASKS = Tasks(12, 4)
MANY = Tasks(100, 4)
ONE_TRY = "++policy_model.responses_api_models.vllm_model.max_attempts=1"
"""The engine's own retries are what is looked at."""
UNUSABLE = {"model_bad_reply", "model_unreachable"}


def kinds(files: Files) -> set[str]:
    return {row["failure"]["kind"] for row in files.failures}


def finished(collection: Collection, tasks: Tasks, max_attempts: int) -> tuple[Outcome, Files]:
    done = collection.finish()
    assert "Traceback" not in done.err
    assert done.code in {0, 1}, done.err
    files = read_files(collection.output, max_attempts)
    assert_true_so_far(files, tasks)
    return done, files


def collected(
    folder: Path, policy: tuple[str, ...], *arguments: str, max_attempts: int = 5
) -> tuple[Files, Counter[str]]:
    """A run that has to get through: every rollout is scored in the end."""
    with (
        policy_running(*policy) as endpoint,
        collecting(folder, TASKS, endpoint.url, "--max-attempts", str(max_attempts), *arguments) as collection,
    ):
        done, files = finished(collection, TASKS, max_attempts)
        assert done.code == 0, done.err
        assert_complete(files, TASKS)
        assert not files.failed
        return files, endpoint.served()


# --- faults that pass ------------------------------------------------------------------------------------------------


def test_a_slow_endpoint_costs_time_only(tmp_path: Path) -> None:
    files, served = collected(tmp_path, ("--slow-s", "0.3"))
    assert not files.failures
    assert served == {GOOD: 48}


def test_a_request_that_hangs_meets_its_deadline_and_is_made_again(tmp_path: Path) -> None:
    files, served = collected(tmp_path, ("--fault", "hang=0.1"), "--rollout-timeout", "0.7", "--concurrency", "48")
    assert kinds(files) == {"rollout_timeout"}
    assert served["hang"] == len(files.failures) > 0
    assert all(row["failure"]["seconds"] >= 0.7 for row in files.failures)


def test_an_endpoint_that_drops_connections_for_a_while_is_waited_for(tmp_path: Path) -> None:
    """An outage is waited out by one rollout at a time; the others keep their attempts."""
    files, served = collected(tmp_path, ("--slow-s", "0.02", "--flap", "15:1.5"), "--concurrency", "8", ONE_TRY)
    assert served["flap"] > 0
    assert kinds(files) == {"model_unreachable"}
    assert len(files.failures) < 96  # two attempts each would be no waiting at all


def test_statuses_that_pass_are_tried_again(tmp_path: Path) -> None:
    faults = ("--fault", "429=0.05", "--fault", "503=0.05", "--fault", "500=0.05")
    files, served = collected(tmp_path, faults, ONE_TRY, max_attempts=6)
    assert {"429", "503", "500"} <= set(served)
    assert kinds(files) == {"model_rate_limited", "model_overloaded", "model_error"}
    assert len(files.failures) == served["429"] + served["503"] + served["500"]


def test_a_mixture_of_everything_gets_through(tmp_path: Path) -> None:
    faults = [part for name in FAULTS if name != "hang" for part in ("--fault", f"{name}=0.02")]
    files, served = collected(tmp_path, ("--slow-s", "0.02", *faults), "--workers", "2", max_attempts=8)
    assert sum(served.values()) > served[GOOD] >= 48
    assert not kinds(files) - UNUSABLE - {"model_rate_limited", "model_overloaded", "model_error"}


# --- faults that do not pass -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_never_a_reward(tmp_path: Path, lie: str) -> None:
    """The right letter is in every one of these answers, and yet none of them is a chat completion."""
    with (
        policy_running("--fault", f"{lie}=1") as endpoint,
        collecting(tmp_path, MANY, endpoint.url, ONE_TRY, "--give-up-after", "1") as collection,
    ):
        done, files = finished(collection, MANY, 3)
        assert done.code == 1
        assert endpoint.served()[lie] > 0
        assert kinds(files) <= UNUSABLE
        if lie != "wrong_types":  # some of those are wrong in what nobody reads: rewards are checked all the same
            assert not files.scored
            assert files.owed
            assert len(files.failures) < 100  # it does not go through all of them
            assert files.manifest is not None
            assert files.manifest["state"] == "incomplete"
            assert "policy_model" in files.manifest["note"] or endpoint.url in files.manifest["note"]
            assert "are still owed: run the same command with --resume" in done.err or "owed" in done.out


def test_an_endpoint_that_always_answers_500_is_diagnosed_early(tmp_path: Path) -> None:
    with (
        policy_running("--fault", "500=1") as endpoint,
        collecting(tmp_path, MANY, endpoint.url, ONE_TRY) as collection,
    ):
        done, files = finished(collection, MANY, 3)
        assert done.code == 1
        assert endpoint.served()["500"] < 200
    assert not files.scored
    assert files.owed
    assert kinds(files) == {"model_error"}
    assert files.manifest is not None
    assert (files.manifest["state"], "500" in files.manifest["note"]) == ("incomplete", True)


def test_an_endpoint_that_always_hangs_ends_in_bounded_time(tmp_path: Path) -> None:
    with (
        policy_running("--fault", "hang=1") as endpoint,
        collecting(
            tmp_path,
            TASKS,
            endpoint.url,
            *("--rollout-timeout", "0.5", "--max-attempts", "2", "--concurrency", "48"),
        ) as collection,
    ):
        done, files = finished(collection, TASKS, 2)
    assert done.code == 1
    assert not files.scored
    assert kinds(files) <= {"rollout_timeout"}


def test_an_endpoint_that_stays_away_is_given_up_and_everything_stays_owed(tmp_path: Path) -> None:
    with (
        policy_running("--flap", "5:3600") as endpoint,
        collecting(tmp_path, TASKS, endpoint.url, ONE_TRY, "--give-up-after", "1") as collection,
    ):
        done, before = finished(collection, TASKS, 3)
        assert done.code == 1
        assert before.owed
        assert before.manifest is not None
        assert "has been unreachable" in before.manifest["note"]
        endpoint.kill()
        endpoint.start()  # it drops again after five: the resume gets a little further
        _, after = finished(collection, TASKS, 3)
        assert len(after.scored) > len(before.scored)
        assert set(before.scored_lines) <= set(after.scored_lines)
