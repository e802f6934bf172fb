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

from gymnast.cluster.identity import this_holder
from gymnast.cluster.lease import claim
from gymnast.cluster.turns import leased, one_writer
from gymnast.errors import UserError
from gymnast.store.chunk_layout import ChunkFolder
from gymnast.store.chunk_look import look_at_chunk

LEASE_S = 0.9
HOLD = """
import sys
from pathlib import Path
from gymnast.cluster.lease import decides
from gymnast.cluster.turns import leased
from gymnast.store.chunk_layout import ChunkFolder

folder = Path(sys.argv[1])
with leased(folder, float(sys.argv[2])) as held:
    print("held", flush=True)
    sys.stdin.readline()
    print("still" if decides(ChunkFolder(folder), held.lease) else "lost", flush=True)
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
        with pytest.raises(UserError, match=f"pid {process.pid} on "), leased(folder, LEASE_S, patience_s=0.1):
            pass
        time.sleep(2 * LEASE_S)
        with pytest.raises(UserError, match=f"pid {process.pid} on "), leased(folder, LEASE_S, patience_s=0.1):
            pass
        assert process.communicate("\n")[0] == "still\n"
        with leased(folder, LEASE_S, patience_s=0.1) as held:
            assert not held.after_a_dead_one


def test_a_holder_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "writing"
    with holding(folder) as process:
        process.kill()
        process.wait()
        with leased(folder, lease_s=600.0, patience_s=0.1) as held:
            assert held.after_a_dead_one


def test_a_holder_that_falls_silent_loses_its_turn_and_finds_out(tmp_path: Path) -> None:
    """As one on a host that cannot be reached: patience ends only when it is known to live."""
    folder = tmp_path / "writing"
    with holding(folder) as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        began = time.monotonic()
        with leased(folder, LEASE_S, patience_s=0.1) as held:
            assert time.monotonic() - began >= LEASE_S, "by our own clock, from our own first look"
            assert held.after_a_dead_one
            process.send_signal(signal.SIGCONT)
            assert process.communicate("\n")[0] == "lost\n"
        with leased(folder, LEASE_S, patience_s=0.1) as held:
            assert not held.after_a_dead_one, "who lost its turn took nothing with it"


def test_the_kernels_lock_where_there_is_one(tmp_path: Path) -> None:
    with one_writer(tmp_path / "x.lock", tmp_path / "writing") as turn:
        turn.check()
        assert (tmp_path / "x.lock").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_lease_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = tmp_path / "writing"
    with one_writer(tmp_path / "x.lock", folder) as turn:
        turn.check()
        assert turn.mark
        taken = claim(look_at_chunk(ChunkFolder(folder), "writing"), holder=this_holder("other"), token="other")
        assert taken is not None
        with pytest.raises(UserError, match="another one writes the run now"):
            turn.check()
