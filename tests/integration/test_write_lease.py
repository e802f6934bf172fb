"""One writer of a run where the file system has no locks: between processes, by leases."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gymnast.chunks.identity import this_holder
from gymnast.chunks.lease import claim
from gymnast.chunks.write_lease import hold_folder_lease, hold_write_lease
from gymnast.errors import UserError
from gymnast.store.chunk_layout import ChunkFolder
from gymnast.store.chunk_state import read_folder_state

LEASE_S = 0.9
HOLD = """
import sys
from pathlib import Path
from gymnast.chunks.lease import is_current
from gymnast.chunks.write_lease import hold_folder_lease
from gymnast.store.chunk_layout import ChunkFolder

folder = Path(sys.argv[1])
with hold_folder_lease(folder, float(sys.argv[2])) as held:
    print("held", flush=True)
    sys.stdin.readline()
    print("still" if is_current(ChunkFolder(folder), held.lease) else "lost", flush=True)
"""


@contextmanager
def holding(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease until it is sent a line."""
    command = [sys.executable, "-c", HOLD, str(folder), str(LEASE_S)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_holder_that_lives_is_named_and_one_that_is_done_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "writing"
    with holding(folder) as process:
        with (
            pytest.raises(UserError, match=f"pid {process.pid} on "),
            hold_folder_lease(folder, LEASE_S, timeout_s=0.1),
        ):
            pass
        time.sleep(2 * LEASE_S)
        with (
            pytest.raises(UserError, match=f"pid {process.pid} on "),
            hold_folder_lease(folder, LEASE_S, timeout_s=0.1),
        ):
            pass
        assert process.communicate("\n")[0] == "still\n"
        with hold_folder_lease(folder, LEASE_S, timeout_s=0.1) as held:
            assert not held.previous_holder_died


def test_a_holder_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "writing"
    with holding(folder) as process:
        process.kill()
        process.wait()
        with hold_folder_lease(folder, lease_s=600.0, timeout_s=0.1) as held:
            assert held.previous_holder_died


def test_a_holder_that_falls_silent_loses_its_lease_and_finds_out(tmp_path: Path) -> None:
    """As one on a host that cannot be reached: patience ends only when it is known to live."""
    folder = tmp_path / "writing"
    with holding(folder) as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        began = time.monotonic()
        with hold_folder_lease(folder, LEASE_S, timeout_s=0.1) as held:
            assert time.monotonic() - began >= LEASE_S, "by our own clock, from our own first look"
            assert held.previous_holder_died
            process.send_signal(signal.SIGCONT)
            assert process.communicate("\n")[0] == "lost\n"
        with hold_folder_lease(folder, LEASE_S, timeout_s=0.1) as held:
            assert not held.previous_holder_died, "who lost its lease took nothing with it"


def test_the_kernels_lock_where_there_is_one(tmp_path: Path) -> None:
    with hold_write_lease(tmp_path / "x.lock", tmp_path / "writing") as write_lease:
        write_lease.check()
        assert (tmp_path / "x.lock").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_lease_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = tmp_path / "writing"
    with hold_write_lease(tmp_path / "x.lock", folder) as write_lease:
        write_lease.check()
        assert write_lease.mark
        taken = claim(read_folder_state(ChunkFolder(folder), "writing"), holder=this_holder("other"), token="other")
        assert taken is not None
        with pytest.raises(UserError, match="lost its write lease to another process"):
            write_lease.check()
