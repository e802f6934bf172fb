"""Runs a command for somebody else: bounded in time and output, and ended with everything it started.

The command is the leader of a process group of its own. A watcher in that group, a shell that reads from a pipe only we
hold, kills the group should we die without a word. Processes that left the group are found by a mark in their
environment. This is no sandbox: a command sees what this user sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from gymnast.runtime.spawn import oom_kills

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MARK: Final = "GYMNAST_ROLLOUT_MARK"
"""The variable whose value is unique to one run of a command."""
_GRACE_S: Final = 2.0
_DRAIN_S: Final = 1.0
_CHUNK: Final = 1 << 16
# $0 is what the command reads; standard input is the pipe whose end means that we are gone. The watcher is started from
# a subshell, so that the command has no child it does not know of.
_WATCHED: Final = '(exec 3<&0; { read -r _ <&3; kill -9 0; } >/dev/null 2>&1 &) ; exec "$@" <"$0"'


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """What to run."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path
    mark: str
    """Unique to this run: how processes that left the group are found."""
    folders: tuple[Path, ...] = ()
    """What it may write where it runs behind walls."""
    stdin: Path = Path(os.devnull)
    timeout_s: float = 1800.0
    max_output_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How it ended."""

    exit_code: int
    """Negative: the signal that ended it."""
    seconds: float
    stdout: str
    stderr: str
    dropped_bytes: int = 0
    """Output beyond the bound; what is kept is the end."""
    timed_out: bool = False
    out_of_memory: bool = False

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.timed_out:
            return f"was still running after {self.seconds:.1f} s and was killed"
        if self.out_of_memory:
            return "was killed because memory ran out (out of memory)"
        if self.exit_code < 0:
            return f"was killed by {signal.Signals(-self.exit_code).name}"
        return f"exited with code {self.exit_code}"


class Runner(Protocol):
    """Runs commands somewhere: here, or in a sandbox."""

    async def __call__(self, spec: CommandSpec) -> CommandResult:
        """Run it to its end. When cancelled, nothing of it may be left running."""
        ...


async def run_here(spec: CommandSpec) -> CommandResult:
    """Run a command on this machine as this user."""
    started, kills_before = time.perf_counter(), oom_kills()
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        _WATCHED,
        str(spec.stdin),
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
        _signal_group(process.pid, signal.SIGKILL)
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
    """Nothing of it is left: neither processes nor open pipes."""
    await asyncio.to_thread(kill_marked, mark)
    await process.wait()
    _, unfinished = await asyncio.wait(readers, timeout=_DRAIN_S)
    for reader in unfinished:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    if process.stdin is not None:
        process.stdin.close()


def kill_marked(mark: str) -> int:
    """Kill the processes that carry a mark in their environment; how many there were. They may fork meanwhile."""
    wanted, killed = f"{MARK}={mark}".encode(), 0
    for _ in range(10):
        found = [pid for pid in _processes() if wanted in _environment(pid).split(b"\0")]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        if not found:
            break
        time.sleep(0.01)
    return killed


def _processes() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]


def _environment(pid: int) -> bytes:
    """A process's environment; nothing of a zombie or of somebody else's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _signal_group(pid: int, number: signal.Signals) -> None:
    # The watcher keeps the group alive, so its number cannot have become somebody else's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


class _Tail:
    """The end of a stream, up to a number of bytes."""

    def __init__(self, stream: asyncio.StreamReader, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._kept = bytearray()
        self.dropped = 0

    async def read(self) -> None:
        while chunk := await self._stream.read(_CHUNK):
            self._kept += chunk
            if len(self._kept) > 2 * self._limit:
                self._cut()

    def text(self) -> str:
        self._cut()
        return self._kept.decode("utf-8", errors="replace")

    def _cut(self) -> None:
        over = len(self._kept) - self._limit
        if over > 0:
            del self._kept[:over]
            self.dropped += over
