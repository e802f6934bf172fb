"""Runs a command with limits on time and output, and kills it with everything it started.

A supervisor (`supervise_command.py`) starts the command, adopts whatever it starts, and kills all of it at the end, or
when the pipe that we hold closes because we died. Should a command kill its supervisor, its processes are found by a
marker in their environment. This is not a sandbox: a command can access whatever this user can.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from gymnast.config.secrets import Scrubber, is_secret_key
from gymnast.runtime.spawn import oom_kills

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MARK: Final = "GYMNAST_ROLLOUT_MARK"
"""The environment variable whose value identifies one run of a command."""
_GRACE_S: Final = 2.0
_DRAIN_S: Final = 1.0
_CHUNK: Final = 1 << 16
_MIN_SECRET: Final = 6
"""Shorter values are masked nowhere: they occur in ordinary text."""
_CLEANUP_S: Final = 15.0
"""How long the supervisor may take to kill what is left."""
_SUPERVISOR: Final = str(Path(__file__).with_name("supervise_command.py"))


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """What to run."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path
    mark: str
    """Unique to this run, to find processes that left the group."""
    folders: tuple[Path, ...] = ()
    """Folders it may write to, if it runs in a jail."""
    stdin: Path = Path(os.devnull)
    timeout_s: float = 1800.0
    max_output_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended."""

    exit_code: int
    """Negative if a signal ended it."""
    seconds: float
    stdout: str
    stderr: str
    dropped_bytes: int = 0
    """Output beyond the limit; the end is kept."""
    timed_out: bool = False
    out_of_memory: bool = False

    @property
    def ending(self) -> str:
        """How it ended, for messages."""
        if self.timed_out:
            return f"was still running after {self.seconds:.1f} s and was killed"
        if self.out_of_memory:
            return "was killed because memory ran out (out of memory)"
        if self.exit_code < 0:
            return f"was killed by {signal.Signals(-self.exit_code).name}"
        return f"exited with code {self.exit_code}"


def hide_secrets(result: CommandResult, spec: CommandSpec) -> CommandResult:
    """The result as records may show it: without the values of variables whose names suggest secrets."""
    values = {value for name, value in spec.environment.items() if is_secret_key(name) and len(value) >= _MIN_SECRET}
    scrubber = Scrubber(secrets={*values, spec.mark})
    return replace(result, stdout=scrubber.scrub(result.stdout), stderr=scrubber.scrub(result.stderr))


class CommandRunner(Protocol):
    """Runs commands: locally, or in a sandbox."""

    async def __call__(self, spec: CommandSpec) -> CommandResult:
        """Run a command to its end. When cancelled, all its processes must be killed."""
        ...


async def run_locally(spec: CommandSpec) -> CommandResult:
    """Run a command on this machine as this user."""
    started, kills_before = time.perf_counter(), oom_kills()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", _SUPERVISOR, str(spec.stdin)),
        *spec.argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=spec.cwd,
        env={**spec.environment, MARK: spec.mark},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = _Tail(process.stdout, spec.max_output_bytes), _Tail(process.stderr, spec.max_output_bytes)
    readers = [asyncio.ensure_future(out.read()), asyncio.ensure_future(err.read())]
    timed_out = False
    try:
        try:
            await asyncio.wait_for(process.wait(), spec.timeout_s)
        except TimeoutError:
            timed_out = True
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _GRACE_S)
    finally:
        await _end(process, readers, spec.mark)
    exit_code = process.returncode if process.returncode is not None else -signal.SIGKILL
    return CommandResult(
        exit_code,
        time.perf_counter() - started,
        out.text(),
        err.text(),
        out.dropped + err.dropped,
        timed_out=timed_out,
        out_of_memory=exit_code == -signal.SIGKILL and not timed_out and oom_kills() > kills_before,
    )


async def _end(process: asyncio.subprocess.Process, readers: Sequence[asyncio.Future[None]], mark: str) -> None:
    """Kill its remaining processes and close its pipes."""
    if process.stdin is not None:
        process.stdin.close()  # tells the supervisor to kill the command
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _CLEANUP_S)
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGKILL)
    await asyncio.to_thread(kill_marked, mark)
    await process.wait()
    _, unfinished = await asyncio.wait(readers, timeout=_DRAIN_S)
    for reader in unfinished:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


def kill_marked(mark: str) -> int:
    """Kill the processes with this mark in their environment, which may fork meanwhile. Returns how many."""
    variable, killed = f"{MARK}={mark}".encode(), 0
    for _ in range(10):
        pids = [pid for pid in _processes() if variable in _environment(pid).split(b"\0")]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        if not pids:
            break
        time.sleep(0.01)
    return killed


def _processes() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]


def _environment(pid: int) -> bytes:
    """A process's environment; empty for zombies and other users' processes."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


class _Tail:
    """The last bytes of a stream, up to a limit."""

    def __init__(self, stream: asyncio.StreamReader, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._data = bytearray()
        self.dropped = 0

    async def read(self) -> None:
        while chunk := await self._stream.read(_CHUNK):
            self._data += chunk
            if len(self._data) > 2 * self._limit:
                self._cut()

    def text(self) -> str:
        self._cut()
        return self._data.decode("utf-8", errors="replace")

    def _cut(self) -> None:
        over = len(self._data) - self._limit
        if over > 0:
            del self._data[:over]
            self.dropped += over
