"""Eyes on a program that runs: its output up to a limit, its deadlines, the memory and number of its processes."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

from gymnast.kit.sandbox.inside.frames import HEAD

GLANCE_S = 0.05
"""Between looks at memory and processes; programs that end sooner cost no look."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
READABLE = ("stdout", "stderr", "say", "status")


class Watch:
    """The server's ends of a program's pipes."""

    def __init__(self, pid: int, fds: dict[str, int], *, everything_is_ours: bool) -> None:
        self.pid, self.fds = pid, fds
        self.everything_is_ours = everything_is_ours
        self.read = {name: bytearray() for name in READABLE}
        self.unsent: dict[str, memoryview] = {}
        self.closing: set[str] = set()
        self.parsed, self.answers = 0, 0
        """Bytes of the channel that are complete frames, and how many frames these are."""
        self.cpu_before = 0.0
        """Used by earlier steps of a session."""
        self.next_glance = time.monotonic() + GLANCE_S
        self.poll = select.poll()
        for name in READABLE:
            os.set_blocking(fds[name], False)
            self.poll.register(fds[name], select.POLLIN)
        os.set_blocking(fds["stdin"], False)
        os.set_blocking(fds["hear"], False)

    def feed(self, name: str, data: bytes, *, then_close: bool) -> None:
        if name not in self.fds:
            return
        self.unsent[name] = memoryview(data)
        if then_close:
            self.closing.add(name)
        self._send(name)
        if name in self.unsent:
            self.poll.register(self.fds[name], select.POLLOUT)

    def _send(self, name: str) -> None:
        try:
            while self.unsent[name]:
                self.unsent[name] = self.unsent[name][os.write(self.fds[name], self.unsent[name]) :]
        except BlockingIOError:
            return
        except OSError:  # the program closed its end
            self.closing.add(name)
        del self.unsent[name]
        if name in self.closing:
            self._close(name)
        else:
            self._forget(self.fds[name])

    def _close(self, name: str) -> None:
        fd = self.fds.pop(name)
        self._forget(fd)
        os.close(fd)

    def _forget(self, fd: int) -> None:
        try:
            self.poll.unregister(fd)
        except KeyError:  # it never had to wait
            return

    def until_end(self, limits: dict[str, Any], started: float, calls: int) -> str:
        """Why it stopped: ended, wall, memory, processes, output. Each of several calls has the whole deadline."""
        deadline, answers = started + limits["wall_s"], 0
        while True:
            reason = self._turn(limits, deadline)
            if reason or self._has_ended():
                return reason or self.drain(limits) or "ended"
            if answers < self.answers <= calls:
                deadline, answers = time.monotonic() + limits["wall_s"], self.answers

    def until_answer(self, limits: dict[str, Any], started: float) -> str:
        """As above, or `answered` when the session has executed its code."""
        deadline = started + limits["wall_s"]
        self.cpu_before = self.cpu_s(self.processes())
        while True:
            reason = self._turn(limits, deadline)
            if reason or self.answers:
                return reason or self.drain(limits) or "answered"
            if self._has_ended():
                return self.drain(limits) or "ended"

    def _has_ended(self) -> bool:
        return bool(self.read["status"]) or "status" not in self.fds

    def _turn(self, limits: dict[str, Any], deadline: float) -> str:
        """Wait for something to happen; not empty when the program must be stopped."""
        now = time.monotonic()
        if now >= deadline:
            return "wall"
        if now >= self.next_glance:
            self.next_glance = now + GLANCE_S
            if reason := self._glance(limits):
                return reason
        names = {fd: name for name, fd in self.fds.items()}
        for fd, _ in self.poll.poll(max(0.0, min(deadline, self.next_glance) - now) * 1000):
            name = names[fd]
            if name in self.unsent:
                self._send(name)
            elif not self._take(name, limits["output_bytes"]):
                return "output"
        return ""

    def _take(self, name: str, most: int) -> bool:
        """Read what is there; false when that is more than allowed."""
        held = self.read[name]
        try:
            part = os.read(self.fds[name], 1 << 16)
        except BlockingIOError:
            return True
        if not part:
            self._close(name)
            return True
        room = most + (4096 if name in ("say", "status") else 0) - len(held)
        held += part[:room]
        if name == "say":
            self._count_answers()
        return len(part) <= room

    def drain(self, limits: dict[str, Any]) -> str:
        """What was written before the program ended or answered lies in the pipes already."""
        for name in ("stdout", "stderr", "say"):
            before = -1
            while name in self.fds and len(self.read[name]) != before:
                before = len(self.read[name])
                if not self._take(name, limits["output_bytes"]):
                    return "output"
        return ""

    def _count_answers(self) -> None:
        data = self.read["say"]
        while len(data) - self.parsed >= HEAD.size:
            text, blob = HEAD.unpack_from(data, self.parsed)
            end = self.parsed + HEAD.size + text + blob
            if end > len(data):
                return
            self.parsed, self.answers = end, self.answers + 1

    def _glance(self, limits: dict[str, Any]) -> str:
        pids = self.processes()
        if len(pids) > limits["processes"] + 4:
            return "processes"
        if self.cpu_s(pids) - self.cpu_before > limits["cpu_s"]:
            return "cpu"
        most_kb = limits["memory_mb"] * 1024
        if sum(map(_resident_kb, pids)) > most_kb and sum(map(_proportional_kb, pids)) > most_kb:
            return "memory"
        return ""

    def processes(self) -> list[int]:
        return self.others() if self.everything_is_ours else self.descendants()

    def cpu_s(self, pids: list[int]) -> float:
        """Time used by these processes and by those they have waited for."""
        return sum(map(_ticks, pids)) / TICKS_PER_S

    def others(self) -> list[int]:
        """Every process of the jail but the server and the fork of it that this is."""
        ours = {os.getpid(), os.getppid()}
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in ours]  # noqa: PTH208 - no pathlib here

    def descendants(self) -> list[int]:
        """Every process that comes from the server."""
        found, waiting = [], [os.getpid()]
        while waiting:
            try:
                pid = waiting.pop()
                with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123 - as above
                    children = [int(word) for word in file.read().split()]
            except OSError:
                continue
            found += children
            waiting += children
        return found

    def status(self) -> dict[str, Any] | None:
        """What process 1 said when the program ended."""
        data = self.read["status"]
        if len(data) < HEAD.size:
            return None
        size = HEAD.unpack_from(data)[0]
        said: dict[str, Any] = json.loads(data[HEAD.size : HEAD.size + size])
        return said

    def taken(self) -> dict[str, Any]:
        return {name: len(self.read[name]) for name in ("stdout", "stderr", "say")}

    def take_output(self) -> bytes:
        blob = b"".join(self.read[name] for name in ("stdout", "stderr", "say"))
        for name in ("stdout", "stderr", "say"):
            self.read[name].clear()
        self.parsed, self.answers = 0, 0
        return blob

    def close(self) -> bytes:
        for name in list(self.fds):
            self._close(name)
        return self.take_output()


def _ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - as above
            words = file.read().rpartition(b")")[2].split()
        return sum(map(int, words[11:15]))
    except (OSError, ValueError):
        return 0


def _resident_kb(pid: int) -> int:
    """More than it has: pages that it shares count in full. Cheap to read, and never too little."""
    try:
        with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123 - as above
            words = file.read().split()
        return int(words[1]) * PAGE_KB
    except (OSError, IndexError):
        return 0


def _proportional_kb(pid: int) -> int:
    """Pages that forks share count once, divided among them. Dear to read: only asked when it could matter."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:  # noqa: PTH123 - as above
            lines = [line.split() for line in file]
        return next((int(words[1]) for words in lines if words[0] == "Pss:"), 0)
    except (OSError, ValueError):
        return _resident_kb(pid)
