"""What a program gives up before its first instruction: sight of other processes, places to write, limits, privileges.

The order matters: mounts need the privileges, the filter refuses what the steps before it use.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import resource
from collections.abc import Callable
from typing import Any

NEW_MOUNTS, NEW_PIDS = 0x00020000, 0x20000000
READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
CLONE_NUMBERS = {"x86_64": 56, "aarch64": 220}
SET_DEATH_SIGNAL, SET_DUMPABLE, SET_FILTER, DROP_BOUND, SET_CHILD_SUBREAPER, NO_NEW_PRIVILEGES, AMBIENT = (
    1,
    4,
    22,
    24,
    36,
    38,
    47,
)
KILL_SIGNAL, CHILD_SIGNAL = 9, 17
PLACE = "/tmp/work"  # noqa: S108 - the jail's own, gone with the program
CAPABILITIES = 64


class Filter(ctypes.Structure):
    """The kernel's struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def c_library() -> ctypes.PyDLL:
    """The C library, keeping the interpreter's lock during calls: a clone must not lose it."""
    return ctypes.PyDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def fork_into_namespaces(libc: ctypes.PyDLL) -> int:
    """Like os.fork; the child is process 1 of namespaces of its own.

    One clone instead of unshare and fork: a process can unshare its processes once only, and the server lives on.
    """
    python: Any = ctypes.pythonapi
    number = CLONE_NUMBERS[platform.machine()]
    python.PyOS_BeforeFork()
    pid = libc.syscall(number, ctypes.c_ulong(NEW_MOUNTS | NEW_PIDS | CHILD_SIGNAL), None, None, None, None)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    return checked(pid, "clone")


def mount(libc: ctypes.PyDLL, source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    checked(
        libc.mount(
            source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), data.encode()
        ),
        f"mount {target}",
    )


def private_places(libc: ctypes.PyDLL, tmp_mb: int) -> None:
    """A fresh /tmp and /dev/shm that share one size limit, and a /proc that shows the program's processes only."""
    mount(libc, "none", "/", None, RECURSIVE | PRIVATE)
    mount(libc, "tmpfs", "/tmp", "tmpfs", NO_SETUID | NO_DEVICES, f"size={tmp_mb}m,nr_inodes=16384,mode=1777")  # noqa: S108 - mounted here
    os.mkdir("/tmp/.shm", 0o777)  # noqa: PTH102, S108 - pathlib costs an import in every jail
    mount(libc, "/tmp/.shm", "/dev/shm", None, BIND)  # noqa: S108 - as above
    mount(libc, "proc", "/proc", "proc", NO_SETUID | NO_DEVICES | NO_EXEC)


def limit(limits: dict[str, Any], counted_elsewhere: int) -> None:
    """`counted_elsewhere`: processes of the jail itself that count as the program's; -1: the kernel counts all of the
    user's processes together, so that this limit would count strangers (the server's watch bounds them)."""
    mega = 1 << 20
    pairs = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits["file_mb"] * mega),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ]
    if limits["memory_mb"]:
        pairs.append((resource.RLIMIT_AS, limits["memory_mb"] * mega))
    if counted_elsewhere >= 0:
        pairs.append((resource.RLIMIT_NPROC, limits["processes"] + counted_elsewhere))
    for which, most in pairs:
        hard = resource.getrlimit(which)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (value, value))
    if limits.get("cpu_s"):
        seconds = max(1, int(limits["cpu_s"] + 0.999))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def drop_privileges(libc: ctypes.PyDLL, code: bytes | None) -> None:
    """No capability now or later, and the filter of system calls."""
    libc.prctl(AMBIENT, 4, 0, 0, 0)
    for capability in range(CAPABILITIES):
        libc.prctl(
            DROP_BOUND, capability, 0, 0, 0
        )  # fails past the kernel's last one, and where there are none to drop
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    checked(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    checked(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    if code:
        program = Filter(len(code) // 8, code)
        checked(libc.prctl(SET_FILTER, 2, ctypes.byref(program), 0, 0), "seccomp")


def keep_only(fds: dict[int, int]) -> None:
    """Put each file at its number, and close everything else."""
    # Parked above the targets first: one may stand where another must go.
    parked = {target: _above(fd, 500) for target, fd in fds.items()}
    for target, fd in parked.items():
        os.dup2(fd, target)
    low = 0
    for target in [*sorted(fds), 1 << 20]:
        if low < target:  # an empty range closes everything: the kernel is told that it ends at -1
            os.closerange(low, target)
        low = target + 1


def _above(fd: int, lowest: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD, lowest)


def works(attempt: Callable[[], None]) -> str:
    """Empty when it works in a child of its own, else why not."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except BaseException as error:  # noqa: BLE001 - said, whatever it is
            os.write(theirs, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(theirs)
    said = os.read(ours, 4096).decode()
    os.close(ours)
    os.waitpid(pid, 0)
    return said
