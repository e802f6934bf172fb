"""The executor conformance suite on processes of this host, and what only they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gymnast.errors import NotFoundError
from gymnast.executors.executor import Submission
from gymnast.executors.local import LocalExecutor
from gymnast.executors.registry import executor_for, make_executor
from gymnast.types.job import JobState
from tests.cluster.conformance import ExecutorConformance, Refused
from tests.cluster.desk import Desk
from tests.cluster.runs import CONFIG, STEADY, SharedRun, kill, shared_run, wait_for_all, wait_until
from tests.e2e.test_docs import blocks
from tests.helpers.commands import BIN
from tests.helpers.jsonl import read_jsonl, write_jsonl

SUBMIT = """
import sys
from pathlib import Path
import msgspec
from gymnast.executors.executor import WorkerRequest
from gymnast.executors.local import LocalExecutor

foreground = sys.argv[2] == "foreground"
found = LocalExecutor(foreground=foreground, grace_s=20).submit(WorkerRequest(Path(sys.argv[1]), 2), 1)
print(msgspec.json.encode(found).decode(), flush=True)
sys.stdin.read()
"""


def in_shell(folder: Path, script: str) -> str:
    """What commands print that people type."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    words = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class TestLocal(ExecutorConformance):
    folder: Path

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def executor(self) -> LocalExecutor:
        return LocalExecutor(grace_s=20)

    def refused(self) -> Refused:
        (self.folder / "x_chunks" / "submissions").write_text("in the way")
        return Refused(self.executor(), "cannot start workers: Not a directory")


def submitting(run: SharedRun, how: str) -> subprocess.Popen[bytes]:
    """A process in a session of its own that submits two workers."""
    command = [sys.executable, "-c", SUBMIT, str(run.output), how]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def test_workers_outlive_whoever_submitted_them(tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=30, chunk_rows=6)
    shell = submitting(run, "background")
    assert shell.stdout is not None
    submission = msgspec.json.decode(shell.stdout.readline(), type=Submission)
    os.killpg(shell.pid, signal.SIGHUP)  # as when a terminal is closed
    os.killpg(shell.pid, signal.SIGKILL)
    end(shell)
    assert {view.state for view in wait_for_all(LocalExecutor(), submission)} == {JobState.COMPLETED}
    run.merge()


def test_workers_outlive_their_supervisor_and_can_be_cancelled_without_it(tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=200, chunk_rows=20, mean_s=0.3)
    executor = LocalExecutor()
    submission = executor.submit(run.wanted(3, max_running=2), 1)
    wait_until(lambda: run.scored() > 2, "work")
    kill(int(submission.jobs[0].split("-")[0]))
    wait_until(lambda: executor.states(submission)[2].state is JobState.UNKNOWN, "the supervisor is gone")
    assert [view.state for view in executor.states(submission)[:2]] == [JobState.RUNNING] * 2
    executor.cancel(submission)
    views = wait_for_all(executor, submission)
    assert [view.state for view in views] == [JobState.UNKNOWN, JobState.UNKNOWN, JobState.CANCELLED]
    assert views[0].reason == "it ended without a supervisor"
    assert not run.holders()  # what they held was given back


def test_in_the_foreground_submit_returns_when_all_have_ended(tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=10, chunk_rows=5)
    executor = LocalExecutor(foreground=True)
    submission = executor.submit(run.wanted(2), 1)
    assert {view.state for view in executor.states(submission)} == {JobState.COMPLETED}
    run.merge()


def test_ctrl_c_in_the_foreground_ends_the_workers(tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=200, mean_s=0.3)
    shell = submitting(run, "foreground")
    wait_until(lambda: run.scored() > 2, "work")
    shell.send_signal(signal.SIGINT)
    assert shell.stdout is not None
    submission = msgspec.json.decode(shell.stdout.readline(), type=Submission)
    end(shell)
    assert {view.state for view in LocalExecutor().states(submission)} == {JobState.CANCELLED}
    assert not run.holders()


def test_workers_in_the_foreground_end_with_whoever_waits_for_them(tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=5000, mean_s=0.3)
    shell = submitting(run, "foreground")
    wait_until(lambda: run.scored() > 2, "work")
    pids = {holder.pid for holder in run.holders().values()}
    assert pids
    end(shell)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the workers are gone")


def test_a_job_that_is_not_there_is_not_cancelled(tmp_path: Path) -> None:
    run = shared_run(tmp_path, tasks=2)
    submission = LocalExecutor(foreground=True).submit(run.wanted(1), 1)
    with pytest.raises(NotFoundError, match="there is no job '12_0' here"):
        executor_for(submission).cancel(submission, ("12_0",))


def test_executors_by_name() -> None:
    assert [make_executor(name).name for name in ("local", "ray", "slurm")] == ["local", "ray", "slurm"]
    with pytest.raises(NotFoundError, match="did you mean 'slurm'"):
        make_executor("slrum")


def test_the_page_about_many_workers_runs_as_written(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "many-workers.md"
    submit, look = blocks(page, "bash")[:2]
    in_shell(tmp_path, submit)
    wait_until(lambda: in_shell(tmp_path, "gymnast status out/x.jsonl").startswith("out/x.jsonl: complete"), "done")
    shown = in_shell(tmp_path, look)
    assert "rollouts  out/x.jsonl  (40 of 40)" in shown
    assert "nothing is owed" in in_shell(tmp_path, f"{submit.rstrip()} --resume")


def test_what_failed_for_good_is_tried_again_when_asked(tmp_path: Path) -> None:
    row = {"responses_create_params": {"input": "x"}}
    write_jsonl(tmp_path / "tasks.jsonl", [row, {**row, "fails": True}])
    words = f"gymnast submit -c {CONFIG} --search-dir {STEADY} -i tasks.jsonl -o x.jsonl --workers 1 --wait"
    assert "1 of 2 rollouts were scored" in in_shell(tmp_path, f"{words} 2>&1 || [[ $? == 1 ]]")
    assert (tmp_path / "x.jsonl.done").exists()
    again = in_shell(tmp_path, f"{words} --resume --retry-failed --dry-run 2>&1")
    assert "workers   1" in again
    said = in_shell(tmp_path, f"{words} --no-merge --resume --retry-failed 2>&1 || [[ $? == 1 ]]")
    assert "1 permanently failed rollouts are retried" in said
    assert not (tmp_path / "x.jsonl.done").exists(), "what was merged is not the whole any more"


def test_a_run_is_not_replaced_under_its_workers(tmp_path: Path) -> None:
    """They would write into the files of the new one."""
    desk = Desk(tmp_path)
    words = ["--executor", "local", "--workers", "2", "--chunk-rows", "10"]
    assert desk.submit(*words, mean_s=10.0).code == 0
    refused = desk.submit(*words, "--overwrite")
    assert refused.code == 2
    assert "2 workers are still running on the existing run" in refused.err
    assert desk.status()["requested"] == 60
    steered = desk.gymnast("ctl", "x.jsonl", "pause")
    assert (steered.code, "gymnast cancel RUN ends workers" in steered.err) == (2, True)
    assert desk.gymnast("cancel", "x.jsonl").code == 0
    wait_until(lambda: all(view["state"] != "running" for view in desk.status()["jobs"]), "cancelled")
    again = desk.submit(*words, "--overwrite", "--wait")
    assert again.code == 0, again.err
    assert len(read_jsonl(desk.run)) == 60
