"""One jail as a process of ours: started, asked one thing at a time, ended with everything in it."""

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

from gymnast.kit.sandbox.cgroups import Group
from gymnast.kit.sandbox.inside.frames import HEAD, packed
from gymnast.kit.sandbox.interface import Limits, SandboxError
from gymnast.kit.sandbox.launch import Launch
from gymnast.kit.sandbox.seccomp import refusing_filter

GRACE_S: Final = 5.0
"""Past a program's deadline, until the jail's own server counts as lost."""
REPLY_BYTES: Final = 1 << 16
"""Of a reply, beside the program's output."""
PER_JAIL_COUNTS: Final = (5, 14)
"""From this kernel on, the limit on processes counts those of a user namespace; before, all of the user's."""
INSIDE: Final = ("frames", "confine", "watch", "program", "server")


@dataclass(frozen=True, slots=True)
class Report:
    """What the jail says about a program, or about a step of a session."""

    header: dict[str, Any]
    stdout: bytes
    stderr: bytes
    said: bytes
    """What the program wrote to its channel: its own words."""
    memory_kills: int = 0


class JailLostError(SandboxError):
    """The jail went away while it was asked."""


def server_source() -> str:
    """The jail's server as one text."""
    folder, package = Path(__file__).with_name("inside"), "gymnast.kit.sandbox.inside"
    texts = {f"{package}.{name}": (folder / f"{name}.py").read_text() for name in INSIDE}
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
    """A started jail."""

    def __init__(self, process: asyncio.subprocess.Process, launch: Launch, group: Group | None) -> None:
        self.process, self.launch, self.group = process, launch, group
        self.is_reusable = False
        self.programs = 0
        self._place: tempfile.TemporaryDirectory[str] | None = None
        if not launch.has_walls:
            self._place = tempfile.TemporaryDirectory(prefix="gymnast-unsafe-")
        self._bounds: Limits | None = None

    async def greet(self, preload: tuple[str, ...], environment: dict[str, str]) -> None:
        """Tell the server what it serves, and learn what it can."""
        code = refusing_filter(platform.machine())
        config = {
            "filter": base64.b64encode(code).decode() if code else None,
            "environment": environment,
            "preload": preload,
            "nest": self.launch.nest,
            "has_walls": self.launch.has_walls,
            "processes_counted": self.launch.nest and _kernel() >= PER_JAIL_COUNTS,
        }
        try:
            async with asyncio.timeout(self.launch.start_s):
                source = server_source().encode()
                header, _ = await self._exchange(b"%d\n%b%b" % (len(source), source, packed(config)), REPLY_BYTES)
        except TimeoutError:
            raise SandboxError(f"a jail did not start within {self.launch.start_s:.0f} s") from None
        self.is_reusable = bool(header["nested"])

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    async def ask(self, request: dict[str, Any], blob: bytes, limits: Limits, wall_s: float) -> Report:
        """Have a program run. Whatever goes wrong, this jail is not used again."""
        before = self._bounded(limits)
        self.programs += 1
        frame = packed(
            request
            | {
                "limits": asdict(limits),
                "has_group": self.group is not None,
                "place": self._place.name if self._place else None,
            },
            blob,
        )
        try:
            async with asyncio.timeout(wall_s + GRACE_S):
                header, data = await self._exchange(frame, 3 * limits.output_bytes + REPLY_BYTES)
        except TimeoutError:
            raise JailLostError("the jail did not answer after the program's deadline") from None
        except JailLostError:
            if self._memory_kills() > before:
                return Report({"reason": "memory", "lost": True}, b"", b"", b"")
            raise
        if "failed" in header:
            raise SandboxError(f"the jail could not start the program: {header['failed']}")
        first, second = header["stdout"], header["stdout"] + header["stderr"]
        return Report(header, data[:first], data[first:second], data[second:], self._memory_kills() - before)

    def _bounded(self, limits: Limits) -> int:
        if self.group is not None and self._bounds != limits:
            self.group.bound(limits)
            self._bounds = limits
        return self._memory_kills()

    def _memory_kills(self) -> int:
        return self.group.memory_kills() if self.group is not None else 0

    async def _exchange(self, frame: bytes, most: int) -> tuple[dict[str, Any], bytes]:
        writer, reader = self.process.stdin, self.process.stdout
        assert writer is not None
        assert reader is not None
        try:
            writer.write(frame)
            await writer.drain()
            text_size, blob_size = HEAD.unpack(await reader.readexactly(HEAD.size))
            if text_size + blob_size > most:
                raise JailLostError(f"the jail's reply of {text_size + blob_size} bytes is longer than allowed")
            text = await reader.readexactly(text_size)
            return json.loads(text), await reader.readexactly(blob_size)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise JailLostError(f"the jail ended: {await self._last_words()}") from error

    async def _last_words(self) -> str:
        assert self.process.stderr is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                said = await self.process.stderr.read(4096)
                return said.decode(errors="replace").strip() or "it said nothing"
        return "it said nothing"

    async def close(self) -> None:
        """End it with everything in it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        await self.process.wait()
        if self.launch.stop:
            stopping = await asyncio.create_subprocess_exec(
                *self.launch.stop, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
            await stopping.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(TimeoutError):  # its end is the end of the last process that could write to it
                async with asyncio.timeout(GRACE_S):
                    while await stream.read(1 << 16):
                        pass
        if self._place is not None:
            await asyncio.to_thread(self._place.cleanup)
        if self.group is not None:
            for _ in range(100):
                if self.group.remove():
                    return
                await asyncio.sleep(0.02)


async def started(launch: Launch, group: Group | None) -> Jail:
    try:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            limit=1 << 20,
            start_new_session=True,  # an interrupt at the terminal is ours to handle
        )
    except OSError as error:
        if group is not None:
            group.remove()
        raise SandboxError(f"cannot start {launch.argv[0]}: {error.strerror}") from error
    return Jail(process, launch, group)


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2] if part.isdigit())
