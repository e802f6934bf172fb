"""One jail as a child process: started, sent one request at a time, killed with everything in it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import platform
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gymnast.sandbox.cgroups import Cgroup
from gymnast.sandbox.inside.frames import HEAD, pack_frame
from gymnast.sandbox.interface import Limits, SandboxError
from gymnast.sandbox.launch import Launch
from gymnast.sandbox.seccomp import build_filter

GRACE_S: Final = 60.0
"""After a program's deadline, how long the jail's server may take to reply before it counts as lost."""
CPU_CHECK_INTERVAL_S: Final = 0.5
CPU_TOLERANCE: Final = 1.25
"""How much more than the limit a jail's control group may count: it counts the server too, and the server is exact
about most programs."""
REPLY_BYTES: Final = 1 << 16
"""Maximum size of a reply, not counting the program's output."""
PER_JAIL_NPROC_KERNEL: Final = (5, 14)
"""From this kernel on, RLIMIT_NPROC counts the processes of a user namespace; before, all of the user's."""
SERVER_MODULES: Final = ("frames", "confine", "monitor", "program", "server")


@dataclass(frozen=True, slots=True)
class JailRequest:
    """A request to run a program, or a step of a session."""

    header: dict[str, Any]
    blob: bytes = b""
    then: bytes = b""
    """A frame that the jail reads after it has started the program."""


@dataclass(frozen=True, slots=True)
class JailReply:
    """The jail's reply about a program, or about a step of a session."""

    header: dict[str, Any]
    stdout: bytes
    stderr: bytes
    answers: bytes
    """What the program wrote to its answer channel. Not trusted."""
    oom_kills: int = 0


class JailLostError(SandboxError):
    """The jail ended during a request, or did not answer (`is_silent`)."""

    def __init__(self, message: str, *, is_silent: bool = False) -> None:
        super().__init__(message)
        self.is_silent = is_silent


def lost_reply(reason: str) -> JailReply:
    """What is known about a program whose jail is lost."""
    return JailReply({"reason": reason, "lost": True}, b"", b"", b"")


def server_source() -> str:
    """The jail's server as one source text, whose modules need no files in the jail."""
    folder, package = Path(__file__).with_name("inside"), "gymnast.sandbox.inside"
    texts = {f"{package}.{name}": (folder / f"{name}.py").read_text() for name in SERVER_MODULES}
    return (
        "import sys, types\n"
        f"names = {package.split('.')!r}\n"
        "for end in range(1, len(names) + 1):\n"
        "    sys.modules['.'.join(names[:end])] = types.ModuleType('.'.join(names[:end]))\n"
        f"for name, text in {texts!r}.items():\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    setattr(sys.modules[name.rpartition('.')[0]], name.rpartition('.')[2], module)\n"
        "    exec(compile(text, name, 'exec'), module.__dict__)\n"
        "module.main()\n"
    )


class Jail:
    """A running jail."""

    def __init__(self, process: asyncio.subprocess.Process, launch: Launch, group: Cgroup | None) -> None:
        self.process, self.launch, self.group = process, launch, group
        self.is_reusable = False
        self.programs = 0
        self._work_dir: tempfile.TemporaryDirectory[str] | None = None
        if not launch.is_isolated:
            self._work_dir = tempfile.TemporaryDirectory(prefix="gymnast-unsafe-")
        self._group_limits: Limits | None = None

    async def handshake(self, preload: tuple[str, ...], environment: dict[str, str]) -> None:
        """Send the server its source and configuration, and learn what it supports."""
        code = build_filter(platform.machine())
        config = {
            "filter": base64.b64encode(code).decode() if code else None,
            "environment": environment,
            "preload": preload,
            "nest": self.launch.nest,
            "is_isolated": self.launch.is_isolated,
            "processes_counted": self.launch.nest and _kernel_version() >= PER_JAIL_NPROC_KERNEL,
        }
        try:
            async with asyncio.timeout(self.launch.start_timeout_s):
                source = server_source().encode()
                header, _ = await self._exchange(b"%d\n%b%b" % (len(source), source, pack_frame(config)), REPLY_BYTES)
        except TimeoutError:
            raise SandboxError(f"a jail did not start within {self.launch.start_timeout_s:.0f} s") from None
        self.is_reusable = bool(header["nested"])

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    async def request(self, request: JailRequest, limits: Limits, wall_s: float) -> JailReply:
        """Run a program. If this raises, or the reply's header has "lost", do not use the jail again."""
        kills_before = self._set_group_limits(limits)
        self.programs += 1
        frame = pack_frame(
            request.header
            | {
                "limits": asdict(limits),
                "has_cgroup": self.group is not None,
                "work_dir": self._work_dir.name if self._work_dir else None,
            },
            request.blob,
        )
        frame += request.then
        try:
            async with asyncio.timeout(wall_s + GRACE_S):
                header, data = await self._exchange_within_cpu(frame, limits)
        except TimeoutError:
            raise JailLostError("the jail did not answer after the program's deadline", is_silent=True) from None
        except JailLostError:
            if self._oom_kills() > kills_before:
                return lost_reply("memory")
            raise
        if "failed" in header:
            raise SandboxError(f"the jail could not start the program: {header['failed']}")
        first, second = header["stdout"], header["stdout"] + header["stderr"]
        return JailReply(header, data[:first], data[first:second], data[second:], self._oom_kills() - kills_before)

    async def _exchange_within_cpu(self, frame: bytes, limits: Limits) -> tuple[dict[str, Any], bytes]:
        """Send a request, and stop waiting once the jail has used too much CPU time.

        The server inside counts it too, but misses processes that nothing waits for and that end between two looks.
        """
        max_bytes = 3 * limits.output_bytes + REPLY_BYTES
        before = self.group.cpu_s() if self.group is not None else None
        if self.group is None or before is None:
            return await self._exchange(frame, max_bytes)
        exchange = asyncio.ensure_future(self._exchange(frame, max_bytes))
        try:
            while not (await asyncio.wait({exchange}, timeout=CPU_CHECK_INTERVAL_S))[0]:
                if (self.group.cpu_s() or 0.0) - before > CPU_TOLERANCE * limits.cpu_s + CPU_CHECK_INTERVAL_S:
                    return {"reason": "cpu", "lost": True, "stdout": 0, "stderr": 0}, b""
            return exchange.result()
        finally:
            exchange.cancel()

    async def was_killed_from_outside(self) -> bool:
        """Whether a signal ended the process that holds the jail; a program in the jail cannot send it one."""
        if not self.launch.is_isolated:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                return await self.process.wait() < 0
        return False

    def _set_group_limits(self, limits: Limits) -> int:
        if self.group is not None and self._group_limits != limits:
            self.group.set_limits(limits)
            self._group_limits = limits
        return self._oom_kills()

    def _oom_kills(self) -> int:
        return self.group.oom_kills() if self.group is not None else 0

    async def _exchange(self, frame: bytes, max_bytes: int) -> tuple[dict[str, Any], bytes]:
        writer, reader = self.process.stdin, self.process.stdout
        assert writer is not None
        assert reader is not None
        try:
            writer.write(frame)
            await writer.drain()
            text_size, blob_size = HEAD.unpack(await reader.readexactly(HEAD.size))
            if text_size + blob_size > max_bytes:
                raise JailLostError(
                    f"the jail's reply of {text_size + blob_size} bytes exceeds the limit of {max_bytes}"
                )
            text = await reader.readexactly(text_size)
            return json.loads(text), await reader.readexactly(blob_size)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise JailLostError(f"the jail ended: {await self._read_stderr()}") from error

    async def _read_stderr(self) -> str:
        assert self.process.stderr is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                text = await self.process.stderr.read(4096)
                return text.decode(errors="replace").strip() or "no error output"
        return "no error output"

    async def close(self) -> None:
        """Kill the jail with everything in it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        await self.process.wait()
        if self.launch.stop:
            stop = await asyncio.create_subprocess_exec(
                *self.launch.stop, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
            await stop.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(
                TimeoutError
            ):  # the stream ends when the last process that could write to it has ended
                async with asyncio.timeout(GRACE_S):
                    while await stream.read(1 << 16):
                        pass
        if self._work_dir is not None:
            await asyncio.to_thread(self._work_dir.cleanup)
        if self.group is not None:
            for _ in range(100):
                if self.group.remove():
                    return
                await asyncio.sleep(0.02)


async def start_jail(launch: Launch, group: Cgroup | None) -> Jail:
    """Start a jail's process. Raises SandboxError where it cannot be started."""
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            limit=1 << 20,
            start_new_session=True,  # Ctrl-C at the terminal is for the parent to handle
        )
    except OSError as error:
        if group is not None:
            group.remove()
        raise SandboxError(f"cannot start {launch.argv[0]}: {error.strerror}") from error
    return Jail(process, launch, group)


def _kernel_version() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())
