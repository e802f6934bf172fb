"""Slurm's commands as processes of this machine: deadlines, and jobs that can't be cancelled."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gymnast.errors import UserError
from gymnast.executors.executor import WorkerRequest
from gymnast.executors.hosts import LocalHost
from gymnast.executors.slurm.assembly import SlurmOptions
from gymnast.executors.slurm.executor import SlurmExecutor


def test_jobs_that_could_not_be_taken_back_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller goes away when the workers are queued and the job that merges is not."""
    commands = {
        "sbatch": 'case "$2" in *finish*) echo away >&2; exit 1;; esac; echo 77',
        "scancel": "echo away >&2; exit 1",
    }
    for name, text in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    run = WorkerRequest(run=tmp_path / "x.jsonl", count=2)
    with pytest.raises(UserError, match="jobs 77 could not be cancelled") as caught:
        SlurmExecutor(SlurmOptions(finish=(("merge", "x.jsonl"),))).submit(run, 1)
    assert "scancel 77" in str(caught.value)


def test_commands_here_have_deadlines() -> None:
    assert LocalHost().run([sys.executable, "-c", "print('a b')"]).out == "a b\n"
    with pytest.raises(UserError, match="did not answer within"):
        LocalHost().run(["sleep", "5"], timeout_s=0.2)
    with pytest.raises(UserError, match="there is no command `no-such-command`"):
        LocalHost().run(["no-such-command"])
