"""Runs programs with a timeout, for providers whose sandboxes are reached by a command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from typing import TYPE_CHECKING, Final

from gymnast.compat.nemo_gym.sandbox.providers.base import SandboxCreateError, SandboxExecResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RUNTIME_RETURN_CODE: Final = 125
"""The return code where the command has none: it timed out, or its sandbox failed."""


async def run_process(
    argv: Sequence[str],
    *,
    timeout_s: float | None,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdin: bytes | None = None,
) -> SandboxExecResult:
    """Run a program; after the timeout, kill it and its children."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate(stdin)
    except TimeoutError:
        await _kill(process)
        return SandboxExecResult(None, f"the command timed out after {timeout_s:g} s", RUNTIME_RETURN_CODE, "timeout")
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


def find_program(*names: str) -> str:
    """The path of the first of these programs that is installed."""
    for name in names:
        if path := shutil.which(name):
            return path
    raise SandboxCreateError(f"this sandbox provider needs {' or '.join(names)}, which is not installed")
