"""Slurm's commands as we call them and its words as we read them; answers are those of a real Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.errors import NotFoundError, StartError, UserError
from gymnast.executors.executor import failure_of
from gymnast.executors.hosts import CommandResult, LocalHost, SshHost, make_host
from gymnast.executors.slurm.client import Slurm
from gymnast.executors.slurm.states import parse_exit_code, parse_squeue, parse_state
from gymnast.executors.worker_jobs import SubmissionStatus, matches_job
from gymnast.types.failure import KINDS
from gymnast.types.job import JobState, JobView

SQUEUE = """\
19_2|RUNNING|0|n1|None|1794746986|1794750586|0|
19_0|COMPLETED|0|n0|None|1794746986|1794746990|0|
19_1|FAILED|19200|n0|NonZeroExitCode|1794746986|1794746990|0|
19_4|FAILED|9|n0|JobLaunchFailure|1794746524|1794746524|0|
19_3|PENDING|0||BeginTime|1794747100|N/A|2|
23+0|NODE_FAIL|0|n2|NodeDown|1794746524|1794746530|0|
"""


@dataclass
class FakeHost:
    """Answers as told, and remembers what it was asked."""

    answers: dict[str, CommandResult]
    asked: list[tuple[str, ...]] = field(default_factory=list)
    name: str = "login"

    def run(self, command: Sequence[str], *, timeout_s: float = 60.0) -> CommandResult:
        self.asked.append(tuple(command))
        words = [word for word in command if "=" not in word and word != "env"]
        return self.answers.get(words[0], CommandResult(127, "", f"{words[0]}: not found"))


def test_squeue_is_read() -> None:
    views = {view.job: view for view in parse_squeue(SQUEUE)}
    assert views["19_2"] == JobView(job="19_2", state=JobState.RUNNING, node="n1", started_at=1794746986.0)
    assert views["19_0"].exit_code == 0
    assert views["19_0"].ended_at == 1794746990.0
    assert (views["19_1"].exit_code, views["19_1"].reason) == (75, "NonZeroExitCode")
    assert views["19_4"].exit_code == 137
    assert (views["19_3"].state, views["19_3"].reason) == (JobState.PENDING, "BeginTime, restarted 2 times")
    assert views["19_3"].started_at is None
    assert views["23+0"].state is JobState.NODE_FAILED


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("COMPLETING", JobState.RUNNING),
        ("OUT_OF_MEMORY", JobState.OUT_OF_MEMORY),
        ("TIMEOUT", JobState.TIMED_OUT),
        ("DEADLINE", JobState.TIMED_OUT),
        ("PREEMPTED", JobState.PREEMPTED),
        ("BOOT_FAIL", JobState.NODE_FAILED),
        ("REQUEUE_HOLD", JobState.PENDING),
        ("COMPLETED+", JobState.COMPLETED),
        ("SOMETHING_NEW", JobState.UNKNOWN),
        ("", JobState.UNKNOWN),
    ],
)
def test_slurms_words(word: str, state: JobState) -> None:
    assert parse_state(word) is state


@pytest.mark.parametrize(("text", "code"), [("2:0", 2), ("0:9", 137), ("768", 3), ("15", 143), ("N/A", None), ("0", 0)])
def test_exit_codes(text: str, code: int | None) -> None:
    assert parse_exit_code(text) == code


@pytest.mark.parametrize("state", list(JobState))
def test_every_bad_end_is_in_the_table_of_failures(state: JobState) -> None:
    kind = failure_of(JobView(job="1", state=state, exit_code=1))
    good = {JobState.PENDING, JobState.RUNNING, JobState.COMPLETED, JobState.UNKNOWN}
    assert (kind is None) == (state in good)
    assert kind is None or KINDS[kind.name] is kind


def test_a_job_is_queued() -> None:
    host = FakeHost({"sbatch": CommandResult(0, "123;cluster\n", "")})
    assert Slurm(host).submit("/shared/job.sh") == "123"
    assert host.asked == [("sbatch", "--parsable", "/shared/job.sh")]


@pytest.mark.parametrize(
    ("said", "next_"),
    [
        ("sbatch: error: invalid partition specified: nowhere", "check sinfo"),
        ("sbatch: error: Unable to open file /run/job.sh", "a file system that login sees"),
        ("sbatch: error: Batch job submission failed: Job violates accounting policy", "--dry-run"),
    ],
)
def test_a_refusal_is_in_slurms_words(said: str, next_: str) -> None:
    with pytest.raises(UserError, match="Slurm refuses the job: sbatch: error") as caught:
        Slurm(FakeHost({"sbatch": CommandResult(1, "", said)})).submit("/run/job.sh")
    assert said in str(caught.value)
    assert next_ in str(caught.value)


def test_what_squeue_forgot_accounting_may_know() -> None:
    forgotten = CommandResult(1, "", "slurm_load_jobs error: Invalid job id specified")
    sacct = CommandResult(0, "7_0|COMPLETED|0:0|n1|100|200\n7_1|OUT_OF_MEMORY|0:125|n1|100|150\n", "")
    views = Slurm(FakeHost({"squeue": forgotten, "sacct": sacct})).views(["7"])
    assert [(view.job, view.state) for view in views] == [
        ("7_0", JobState.COMPLETED),
        ("7_1", JobState.OUT_OF_MEMORY),
    ]
    assert Slurm(FakeHost({"squeue": forgotten})).views(["7"]) == []
    assert Slurm(FakeHost({})).views([]) == []


def test_accounting_is_asked_for_elements_of_an_array_that_goes_on() -> None:
    """The controller forgets elements one by one. What it does not know does not run."""
    squeue = CommandResult(0, "7_2|RUNNING|0|n1|None|100|200|0|\n", "")
    told = "7_0|COMPLETED|0:0|n1|100|200\n7_1|RUNNING|0:0|n1|100|Unknown\n7_2|FAILED|0:0|n1|50|60\n"
    sacct = CommandResult(0, told, "")
    host = FakeHost({"squeue": squeue, "sacct": sacct})
    found = {view.job: view.state for view in Slurm(host).views(["7"], ["7_0", "7_1", "7_2"])}
    assert found == {"7_0": JobState.COMPLETED, "7_2": JobState.RUNNING}
    asked = [words for words in host.asked if "sacct" in words]
    assert [words[words.index("-j") + 1] for words in asked] == ["7"], "ten thousand elements are too long a list"
    assert Slurm(host).views(["7"])[0].job == "7_2"


def test_accounting_that_does_not_answer_is_left_alone_for_a_while() -> None:
    class Silent(FakeHost):
        def run(self, command: Sequence[str], *, timeout_s: float = 60.0) -> CommandResult:
            if "sacct" in command:
                assert timeout_s <= 10, "whoever watches waits for it"
                self.asked.append(tuple(command))
                raise UserError("did not answer")
            return super().run(command)

    host = Silent({"squeue": CommandResult(0, "7_2|RUNNING|0|n1|None|100|200|0|\n", "")}, name="silent")
    for _ in range(3):
        assert [view.job for view in Slurm(host).views(["7"], ["7_0", "7_2"])] == ["7_2"]
    assert sum("sacct" in words for words in host.asked) == 1


def test_elements_that_never_began_share_a_line_of_accounting() -> None:
    told = "6_[2-4,9%2]|CANCELLED by 0|0:0|None assigned|Unknown|1794746990\n6_[x]|FAILED||||\n"
    told += "6_0|COMPLETED|0:0|n0|100|200\n"
    host = FakeHost({"squeue": CommandResult(0, "", ""), "sacct": CommandResult(0, told, "")})
    found = {view.job: view for view in Slurm(host).views(["6"], [f"6_{number}" for number in range(10)])}
    assert sorted(found) == ["6_0", "6_2", "6_3", "6_4", "6_9"]
    assert found["6_9"].state is JobState.CANCELLED
    assert (found["6_9"].node, found["6_9"].started_at) == (None, None)


def test_a_job_to_wait_for_must_be_able_to_end_well() -> None:
    squeue = CommandResult(0, "17_3|RUNNING|0|n1|None|100|200|0|\n17_4|COMPLETED|0|n1|None|100|200|0|\n", "")
    sacct = CommandResult(0, "26|FAILED|1:0|n0|100|200\n27|COMPLETED|0:0|n0|100|200\n", "")
    slurm = Slurm(FakeHost({"squeue": squeue, "sacct": sacct}))
    for good in ("17", "17_3", "27", "17:27"):
        assert slurm.resolve_dependency(good if ":" not in good else f"afterok:{good}") == f"afterok:{good}"
    with pytest.raises(UserError, match="'26' did not succeed: job 26 is failed"):
        slurm.resolve_dependency("26")
    with pytest.raises(NotFoundError, match="does not know job 99"):
        slurm.resolve_dependency("afterok:17:99")
    assert slurm.resolve_dependency("afterany:99") == "afterany:99"


def test_jobs_that_are_ending_wait_for_nothing() -> None:
    listed = "5 RUNNING /a b/job.sh it\n6 COMPLETING /job.sh it\n7 PENDING /job.sh other\n8 PENDING /job.sh it\n9 R\n\n"
    assert Slurm(FakeHost({"squeue": CommandResult(0, listed, "")})).find_pending_by_token("it") == ["5", "8"]
    with pytest.raises(UserError, match="cannot list the jobs"):
        Slurm(FakeHost({})).find_pending_by_token("it")


def test_jobs_are_known_by_a_word_of_their_scripts() -> None:
    """Arrays and heterogeneous jobs have one number each, and accounting knows what squeue has forgotten."""
    squeue = (
        "21_[3-9] /a b/workers.sh it\n21_2 /a b/workers.sh it\n19+0 /w.sh it\n19+1 /w.sh it\n5 /w.sh it-finish\n6\n\n"
    )
    sacct = "9_0|sbatch --parsable /a|b/workers.sh it\n8|sbatch --parsable /w.sh\n"
    host = FakeHost({"squeue": CommandResult(0, squeue, ""), "sacct": CommandResult(0, sacct, "")})
    assert Slurm(host).jobs_with_token("it", 1794746524.0) == ["9", "19", "21"]
    assert Slurm(FakeHost({"squeue": CommandResult(0, squeue, "")})).jobs_with_token("it-finish", 0.0) == ["5"]
    with pytest.raises(UserError, match="cannot list the jobs"):
        Slurm(FakeHost({})).jobs_with_token("it", 0.0)


@pytest.mark.parametrize(
    ("said", "kind"), [("invalid partition", StartError), ("Socket timed out on send/recv operation", UserError)]
)
def test_a_refusal_that_may_be_none_is_distinguished(said: str, kind: type[UserError]) -> None:
    with pytest.raises(UserError) as caught:
        Slurm(FakeHost({"sbatch": CommandResult(1, "", said)})).submit("/run/job.sh")
    assert type(caught.value) is kind


def test_a_scheduler_that_does_not_answer_is_an_error() -> None:
    down = CommandResult(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    with pytest.raises(UserError, match="Unable to contact slurm controller"):
        Slurm(FakeHost({"squeue": down})).views(["7"])


def test_cancelling_what_is_over_is_not_an_error() -> None:
    over = CommandResult(1, "", "scancel: error: Kill job error on job id 7: Invalid job id specified\n")
    Slurm(FakeHost({"scancel": over})).cancel(["7"])
    denied = CommandResult(1, "", "scancel: error: Kill job error on job id 7: Access/permission denied\n")
    with pytest.raises(UserError, match="permission denied"):
        Slurm(FakeHost({"scancel": denied})).cancel(["7"])


def test_what_a_job_waits_for() -> None:
    slurm = Slurm(FakeHost({"squeue": CommandResult(0, "12 12\n15 14\n13 14\n", "")}))
    assert slurm.resolve_dependency("afterany:17:18") == "afterany:17:18"
    assert slurm.resolve_dependency("prepare-data") == "afterok:12:14"
    assert slurm.resolve_dependency("afterany:prepare-data") == "afterany:12:14"
    with pytest.raises(NotFoundError, match="no job named 'x'"):
        Slurm(FakeHost({"squeue": CommandResult(0, "", "")})).resolve_dependency("x")


# --- hosts -----------------------------------------------------------------------------------------------------------


def test_a_host_is_not_an_option_of_ssh() -> None:
    assert make_host(None) == LocalHost()
    assert make_host("me@login", ["-p", "22"]) == SshHost("me@login", ("-p", "22"))
    with pytest.raises(UserError, match="expected a host name"):
        make_host("-oProxyCommand=touch /tmp/x")


# --- how many workers ------------------------------------------------------------------------------------------------


@given(st.integers(1, 500), st.integers(0, 500), st.integers(0, 20))
def test_no_more_workers_than_what_is_owed_needs(asked: int, open_chunks: int, live: int) -> None:
    from gymnast.executors.executor import Submission

    views = tuple(JobView(job=f"1_{number}", state=JobState.RUNNING) for number in range(live))
    over = JobView(job="1_x", state=JobState.FAILED)
    submission = Submission(number=1, executor="slurm", jobs=("1",), workers=live, at=0.0, by="x")
    standing = SubmissionStatus(open_chunks, 500, ((submission, (*views, over)),))
    more = standing.count_missing(asked)
    assert standing.live == live
    assert more + live <= max(live, min(asked, open_chunks))
    assert more == 0 or more + live == min(asked, open_chunks)


def test_which_workers_are_meant() -> None:
    assert matches_job("12_3", [])
    assert matches_job("12_3", ["12"])
    assert matches_job("12_3", ["12_3"])
    assert not matches_job("12_3", ["12_4", "1"])
