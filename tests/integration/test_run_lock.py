"""The lock of a run between processes: one holder, free once that is killed, never inherited."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gymnast.errors import UserError
from gymnast.store.lock import RunLock
from tests.helpers.commands import holding_lock


def test_a_second_process_is_refused_and_told_who_holds_the_lock_until_that_one_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    process = holding_lock(path)
    try:
        with pytest.raises(UserError) as caught, RunLock(path):
            pass
        assert f"another process is writing this run: pid {process.pid} on " in caught.value.what
        assert caught.value.next is not None
        assert "gymnast status" in caught.value.next
        assert path.exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert path.exists()  # nobody was left to remove it, and that does not matter
        with RunLock(path):
            assert path.read_text().startswith(f"pid {os.getpid()} on ")
    finally:
        process.kill()
        process.communicate()
    assert not path.exists()


def test_children_do_not_inherit_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with RunLock(path):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with RunLock(path):
            pass
    finally:
        child.kill()
        child.wait()


RACE = """
import sys
from pathlib import Path
from gymnast.errors import UserError
from gymnast.store.keys import KeySet
from gymnast.store.lock import RunLock

path = Path(sys.argv[1])
first = RunLock(path)
first.__enter__()
armed = [True]


def end_the_first(event, arguments):
    if event == "fcntl.flock" and armed:
        armed.clear()
        first.__exit__(None, None, None)


sys.addaudithook(end_the_first)
held = 0
for lock in (RunLock(path), RunLock(path)):
    try:
        lock.__enter__()
        held += 1
    except UserError:
        pass
print(held)
"""


def test_a_holder_that_ends_while_another_comes_does_not_make_room_for_two(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RACE, str(tmp_path / "x.lock")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"
