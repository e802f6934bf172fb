"""Looks for a dead collecting process in the kernel log (`dmesg`), on the host where it ran, if readable."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from gymnast.doctor.findings import quote_line
from gymnast.doctor.scheduler import run_command
from gymnast.store.manifest import RunState

if TYPE_CHECKING:
    from gymnast.doctor.facts import RunFacts
    from gymnast.doctor.scheduler import CommandRunner


def find_kernel_kill(run: RunFacts, run_command: CommandRunner = run_command) -> str | None:
    """The line about killing the last process of a run, if it died without leaving a message."""
    manifest = run.manifest
    if manifest is None or manifest.state is not RunState.RUNNING or not manifest.invocations:
        return None
    if run.is_active:
        return None
    last = manifest.invocations[-1]
    if last.host != socket.gethostname():
        return None
    log = run_command(("dmesg", "-T")) or run_command(("journalctl", "-k", "--no-pager", "-q", "--since", "-2d")) or ""
    lines = re.findall(rf"^.*[Kk]illed process {last.pid} .*$", log, re.MULTILINE)
    return quote_line(lines[-1]) if lines else None
