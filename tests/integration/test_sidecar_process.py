"""A job's sidecar as a process: it runs where nothing is installed, and sees which process listens."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from gymnast.sidecars.component import Component
from gymnast.sidecars.packing import write_job_files
from gymnast.sidecars.sidecar.port_lease import is_owned_by


def test_the_sidecar_runs_without_anything_installed(tmp_path: Path) -> None:
    write_job_files(tmp_path, [Component("collect", (sys.executable, "-c", "print('hello')"), is_main=True)])
    line = [sys.executable, "-I", "-S", str(tmp_path / "sidecar.pyz"), "--spec", str(tmp_path / "collect.json")]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "hello\n"
    assert (tmp_path / "logs" / "collect.0.log").read_text() == "hello\n"


def test_who_listens_on_a_leased_port_is_looked_at() -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            assert not is_owned_by(port, child.pid)  # we listen, not it
        finally:
            child.communicate()
