"""The processes of a running collection on this host, from /proc. Finds what is stopped, traced or waits for a disk."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.doctor.facts import ProcessFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC: Final = Path("/proc")
_HOLDER: Final = re.compile(r"pid (\d+) on (\S+)")
_MAX_PROCESSES: Final = 512
_MAX_COMMAND: Final = 80


def read_processes(lock: Path) -> tuple[ProcessFacts, ...]:
    """The process that holds a run's lock, and what it started; empty if it does not run on this host."""
    pid = _holder(lock)
    if pid is None:
        return ()
    facts = (_read(number, is_collector=number == pid) for number in _tree(pid))
    return tuple(fact for fact in facts if fact is not None)


def _holder(lock: Path) -> int | None:
    """The pid in a lock file, if that process still has the file open: pids are reused, and names shared."""
    try:
        match = _HOLDER.match(lock.read_text())
        if match is None or match[2] != socket.gethostname():
            return None
        links = (_PROC / match[1] / "fd").iterdir()
        return int(match[1]) if any(_is_same(link, lock) for link in links) else None
    except OSError:
        return None


def _is_same(link: Path, file: Path) -> bool:
    try:
        return link.samefile(file)
    except OSError:
        return False


def _tree(pid: int) -> Iterator[int]:
    waiting, count = [pid], 0
    while waiting and count < _MAX_PROCESSES:
        number = waiting.pop(0)
        count += 1
        yield number
        for children in (_PROC / str(number) / "task").glob("*/children"):
            try:
                waiting += [int(child) for child in children.read_text().split()]
            except OSError:
                continue  # it has just ended


def _read(pid: int, *, is_collector: bool) -> ProcessFacts | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
        command = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None
    state = stat.rpartition(")")[2].split()[0]  # the name before it may contain anything
    return ProcessFacts(pid, state, command[:_MAX_COMMAND], is_collector)
