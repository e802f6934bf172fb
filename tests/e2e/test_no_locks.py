"""A run in chunks on a file system that cannot lock files: submit, resume, status and merge do without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.desk import Desk
from tests.cluster.runs import CONFIG, STEADY
from tests.helpers.jsonl import read_jsonl

REFUSES = """
import errno, fcntl, os

def refuse(fd, how):
    raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

fcntl.flock = refuse
"""
WORDS = ["--executor", "local", "--workers", "2", "--chunk-rows", "10"]


def test_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of every process that it starts."""
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(REFUSES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "patch"))
    desk = Desk(tmp_path)
    done = desk.submit(*WORDS, "--wait")
    assert done.code == 0, done.err
    assert len(read_jsonl(desk.run)) == 60
    assert len(read_jsonl(tmp_path / "x_reward_profiling.jsonl")) == 30
    assert desk.status()["scored"] == 60
    assert list(tmp_path.glob("x_chunks/writing/lease.*.json")), "the kernel's lock was used"
    again = desk.submit(*WORDS, "--resume")
    assert (again.code, "nothing is owed" in again.out) == (0, True), again.err
    assert desk.gymnast("merge", "x.jsonl").code == 0
    assert not list(tmp_path.glob("*.new"))
    plain = desk.gymnast("collect", "-c", CONFIG, "--search-dir", str(STEADY), "-i", "tasks.jsonl", "-o", "y.jsonl")
    assert (plain.code, "files cannot be locked here" in plain.err) == (2, True)
