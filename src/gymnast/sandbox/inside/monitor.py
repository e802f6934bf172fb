"""Monitors a running program: reads its output up to a limit, enforces deadlines, memory and number of processes.

Between the steps of a session, every process of the program is stopped.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any

from gymnast.sandbox.inside.frames import HEAD

CHECK_INTERVAL_S = 0.05
"""Between checks of memory and processes. Programs that end sooner are never checked."""
SUSPEND_TIMEOUT_S = 10.0
"""A session whose processes cannot be stopped within this time is killed. On a busy host it takes a while."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
OUTPUTS = ("stdout", "stderr", "answers")
READABLE = (*OUTPUTS, "status")


class ProgramMonitor:
    """The server's ends of a program's pipes."""

    def __init__(self, pid: int, fds: dict[str, int], *, owns_all_processes: bool) -> None:
        self.pid, self.fds = pid, fds
        self.owns_all_processes = owns_all_processes
        self.read = {name: bytearray() for name in READABLE}
        self.unsent: dict[str, memoryview] = {}
        self.closing: set[str] = set()
        self.parsed_bytes, self.answer_count = 0, 0
        """Bytes of the answer channel that are complete frames, and the number of these frames."""
        self.cpu_before = 0.0
        """CPU time used by earlier steps of a session."""
        self.ticks: dict[int, int] = {}
        """Each process's own CPU time when it was last seen."""
        self.lost_ticks = 0
        """CPU time of processes that are gone, as far as it was seen."""
        self.known: list[int] = []
        """The processes of a suspended session, except the first."""
        self.suspended: set[int] = set()
        """Processes that were stopped between two steps."""
        self.next_check = time.monotonic() + CHECK_INTERVAL_S
        self.poll = select.poll()
        for name in READABLE:
            os.set_blocking(fds[name], False)
            self.poll.register(fds[name], select.POLLIN)
        os.set_blocking(fds["stdin"], False)
        os.set_blocking(fds["requests"], False)

    def feed(self, name: str, data: bytes, *, then_close: bool) -> None:
        """Send data to the program, as far as its pipe takes it now; the rest follows while waiting."""
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
            self._unregister(self.fds[name])

    def _close(self, name: str) -> None:
        fd = self.fds.pop(name)
        self._unregister(fd)
        os.close(fd)

    def _unregister(self, fd: int) -> None:
        try:
            self.poll.unregister(fd)
        except KeyError:  # it was never registered
            return

    def wait_for_end(self, limits: dict[str, Any], started: float, calls: list[bytes]) -> str:
        """Wait for the program. Returns why it stopped: ended, wall, cpu, memory, processes or output.

        Each of several calls has the whole deadline, and is sent after the answer to the one before it: a program that
        knew them all could spend the time of one call on another.
        """
        deadline, answers = started + limits["wall_s"], 0
        if not calls and "requests" in self.fds:
            self._close("requests")  # nothing will be called: the program need not wait for it
        while True:
            reason = self._poll_once(limits, deadline)
            if reason or self._has_ended():
                return reason or self.drain(limits) or "ended"
            if answers < self.answer_count and answers < len(calls):
                deadline, answers = time.monotonic() + limits["wall_s"], answers + 1
                self.feed("requests", calls[answers - 1], then_close=answers == len(calls))

    def wait_for_answer(self, limits: dict[str, Any], started: float) -> str:
        """Like `wait_for_end`, or `answered` when the session has executed its code."""
        deadline = started + limits["wall_s"]
        self.cpu_before = self.cpu_s([*self.known, self.pid])
        self._resume()
        while True:
            reason = self._poll_once(limits, deadline)
            if reason or self.answer_count:
                return reason or self.drain(limits) or "answered"
            if self._has_ended():
                return self.drain(limits) or "ended"

    def _has_ended(self) -> bool:
        return bool(self.read["status"]) or "status" not in self.fds

    def _poll_once(self, limits: dict[str, Any], deadline: float) -> str:
        """Wait for an event. Returns the reason if the program must be stopped."""
        now = time.monotonic()
        if now >= deadline:
            return "wall"
        if now >= self.next_check:
            self.next_check = now + CHECK_INTERVAL_S
            if reason := self._check_usage(limits):
                return reason
        names = {fd: name for name, fd in self.fds.items()}
        for fd, _ in self.poll.poll(max(0.0, min(deadline, self.next_check) - now) * 1000):
            name = names[fd]
            if name in self.unsent:
                self._send(name)
            elif not self._take(name, limits["output_bytes"]):
                return "output"
        return ""

    def _take(self, name: str, max_bytes: int) -> bool:
        """Read what is available. Returns False when that is more than allowed."""
        data = self.read[name]
        try:
            part = os.read(self.fds[name], 1 << 16)
        except BlockingIOError:
            return True
        if not part:
            self._close(name)
            return True
        room = max_bytes + (4096 if name in ("answers", "status") else 0) - len(data)
        data += part[:room]
        if name == "answers":
            self._count_answers()
        return len(part) <= room

    def drain(self, limits: dict[str, Any]) -> str:
        """Read what the program wrote before it ended or answered: it is in the pipes already."""
        for name in OUTPUTS:
            before = -1
            while name in self.fds and len(self.read[name]) != before:
                before = len(self.read[name])
                if not self._take(name, limits["output_bytes"]):
                    return "output"
        return ""

    def _count_answers(self) -> None:
        data = self.read["answers"]
        while len(data) - self.parsed_bytes >= HEAD.size:
            text, blob = HEAD.unpack_from(data, self.parsed_bytes)
            end = self.parsed_bytes + HEAD.size + text + blob
            if end > len(data):
                return
            self.parsed_bytes, self.answer_count = end, self.answer_count + 1

    def suspend(self, limits: dict[str, Any]) -> str:
        """Stop every process until the next step. Returns the reason if the program must be killed instead.

        A process that is not stopped yet may fork or continue others, so this ends only when a new list has no process
        that was not stopped before, and all in it still are.
        """
        deadline = time.monotonic() + SUSPEND_TIMEOUT_S
        known = self.known
        while (now := time.monotonic()) < deadline:
            if now > self.next_check:
                self.next_check = now + CHECK_INTERVAL_S
                if reason := self._check_usage(limits):
                    return reason
            running = [pid for pid in known if not _is_stopped(pid)]
            # One with a stop on its way stops by itself: the program sent it, or an earlier round of this loop did.
            unstopped = [pid for pid in running if not _stop_is_pending(pid) and not _is_stopped(pid)]
            for pid in unstopped:
                _send_signal(pid, signal.SIGSTOP)
            self.suspended.update(unstopped)
            if running:
                time.sleep(0.00005)
                continue
            pids = [pid for pid in self.processes() if pid != self.pid]
            if self.suspended.union(known).issuperset(pids) and all(map(_is_stopped, pids)):
                self.known = pids
                return self._check_sizes([*pids, self.pid], limits)
            known = pids
        return "processes"

    def _resume(self) -> None:
        """Continue what `suspend` stopped, but not what the program itself had stopped."""
        for pid in self.suspended:
            _send_signal(pid, signal.SIGCONT)
        self.suspended.clear()

    def _check_usage(self, limits: dict[str, Any]) -> str:
        pids = self.processes()
        if self.cpu_s(pids) - self.cpu_before > limits["cpu_s"]:
            return "cpu"
        return self._check_sizes(pids, limits)

    def _check_sizes(self, pids: list[int], limits: dict[str, Any]) -> str:
        if len(pids) > limits["processes"] + 4:
            return "processes"
        max_kb = limits["memory_mb"] * 1024
        if sum(map(_resident_kb, pids)) > max_kb and sum(map(_proportional_kb, pids)) > max_kb:
            return "memory"
        return ""

    def processes(self) -> list[int]:
        return self._others() if self.owns_all_processes else self._descendants()

    def cpu_s(self, pids: list[int]) -> float:
        """CPU time of these processes and of those that are gone.

        The kernel adds a child's time to its parent's only if the parent waits for it, so the time of those that were
        seen before they vanished is kept. Both counts may have the same child: the larger one is right.
        """
        own: dict[int, int] = {}
        waited_for = 0
        for pid in pids:
            own[pid], children = _ticks(pid)
            waited_for += children
        self.lost_ticks += sum(ticks for pid, ticks in self.ticks.items() if pid not in own)
        self.ticks = own
        return (sum(own.values()) + max(waited_for, self.lost_ticks)) / TICKS_PER_S

    def _others(self) -> list[int]:
        """Every process of the jail except the server and this fork of it."""
        ours = {os.getpid(), os.getppid()}
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in ours]  # noqa: PTH208 - no pathlib here

    def _descendants(self) -> list[int]:
        descendants, pending = [], [os.getpid()]
        while pending:
            try:
                pid = pending.pop()
                with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123 - as above
                    children = [int(word) for word in file.read().split()]
            except OSError:
                continue
            descendants += children
            pending += children
        return descendants

    def status(self) -> dict[str, Any] | None:
        """What process 1 reported when the program ended."""
        data = self.read["status"]
        if len(data) < HEAD.size:
            return None
        size = HEAD.unpack_from(data)[0]
        status: dict[str, Any] = json.loads(data[HEAD.size : HEAD.size + size])
        return status

    def output_sizes(self) -> dict[str, Any]:
        return {name: len(self.read[name]) for name in OUTPUTS}

    def take_output(self) -> bytes:
        blob = b"".join(self.read[name] for name in OUTPUTS)
        for name in OUTPUTS:
            self.read[name].clear()
        self.parsed_bytes, self.answer_count = 0, 0
        return blob

    def close(self) -> bytes:
        for name in list(self.fds):
            self._close(name)
        return self.take_output()


def _ticks(pid: int) -> tuple[int, int]:
    """The CPU time of a process, and of the children that it has waited for."""
    try:
        user, system, child_user, child_system = map(int, _stat(f"/proc/{pid}/stat")[11:15])
    except (OSError, ValueError):
        return 0, 0
    return user + system, child_user + child_system


def _stat(path: str) -> list[bytes]:
    """The fields after the name, which may contain anything."""
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        return file.read().rpartition(b")")[2].split()


def _is_stopped(pid: int) -> bool:
    """Whether it is stopped or gone. One that waits in the kernel (D) with a stop pending stops before it returns."""
    try:
        state = _stat(f"/proc/{pid}/stat")[0]
        if state == b"D":
            return _stop_is_pending(pid)
        if state != b"Z":
            return state in b"TtXx"
        # The first thread has ended, but others may not have.
        threads = [name for name in os.listdir(f"/proc/{pid}/task") if name != str(pid)]  # noqa: PTH208 - as above
        return all(_stat(f"/proc/{pid}/task/{name}/stat")[0] in b"TtDXxZ" for name in threads)
    except (OSError, IndexError):
        return True


def _stop_is_pending(pid: int) -> bool:
    """Whether SIGSTOP was sent to it and has not stopped it yet."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - as above
            masks = [int(line.split()[1], 16) for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    except OSError:
        return False
    return any(mask >> (signal.SIGSTOP - 1) & 1 for mask in masks)


def _send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it has ended
        return


def _resident_kb(pid: int) -> int:
    """An upper bound: shared pages count in full. Cheap to read."""
    try:
        with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123 - as above
            words = file.read().split()
        return int(words[1]) * PAGE_KB
    except (OSError, IndexError):
        return 0


def _proportional_kb(pid: int) -> int:
    """Shared pages are divided among the processes that share them. Expensive: only read when it could matter."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:  # noqa: PTH123 - as above
            lines = [line.split() for line in file]
        return next((int(words[1]) for words in lines if words[0] == "Pss:"), 0)
    except (OSError, ValueError):
        return _resident_kb(pid)
