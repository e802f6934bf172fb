"""What the kernel says of a collecting process that is gone: `dmesg`, on the host where it ran, if we may read it."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from gymnast.doctor.findings import quoted
from gymnast.doctor.scheduler import ask
from gymnast.store.manifest import RunState

if TYPE_CHECKING:
    from gymnast.doctor.facts import RunFacts
    from gymnast.doctor.scheduler import Run


def killed_by_kernel(run: RunFacts, ask: Run = ask) -> str | None:
    """The line about killing the process that last worked on a run, if it went without a word."""
    manifest = run.manifest
    if manifest is None or manifest.state is not RunState.RUNNING or not manifest.invocations:
        return None
    if run.is_going_on:
        return None
    last = manifest.invocations[-1]
    if last.host != socket.gethostname():
        return None
    said = ask(("dmesg", "-T")) or ask(("journalctl", "-k", "--no-pager", "-q", "--since", "-2d")) or ""
    found = re.findall(rf"^.*[Kk]illed process {last.pid} .*$", said, re.MULTILINE)
    return quoted(found[-1]) if found else None
