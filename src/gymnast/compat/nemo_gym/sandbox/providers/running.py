"""Running a program to its end, with a deadline, for providers whose sandboxes are reached by a command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from typing import TYPE_CHECKING

from gymnast.compat.nemo_gym.sandbox.providers.base import SandboxCreateError, SandboxExecResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


async def run_to_end(
    argv: Sequence[str], *, timeout_s: float | None, cwd: Path | None = None, env: dict[str, str] | None = None
) -> SandboxExecResult:
    """Run a program; past its deadline it and all it started are killed."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except TimeoutError:
        await _kill(process)
        return SandboxExecResult("", f"the command did not end within {timeout_s:g} s", 124, "timeout")
    except BaseException:
        await _kill(process)
        raise
    return SandboxExecResult(
        out.decode("utf-8", errors="replace"), err.decode("utf-8", errors="replace"), process.returncode or 0
    )


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def program(*names: str) -> str:
    """The first of some programs that is installed."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise SandboxCreateError(f"none of {', '.join(names)} is installed here: this sandbox provider cannot be used")
    return found
