"""Confinement of a program before its first instruction: namespaces, private mounts, limits, dropped privileges.

The order matters: mounts need the privileges, and the filter denies calls that the earlier steps make.
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
WORK_DIR = "/tmp/work"  # noqa: S108 - the jail's own, removed with the program
CAPABILITIES = 64
MAX_TERMINALS = 16


class Filter(ctypes.Structure):
    """The kernel's struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def c_library() -> ctypes.PyDLL:
    """The C library, called with the GIL held: a clone must not lose it."""
    return ctypes.PyDLL(None, use_errno=True)


def check_result(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def fork_into_namespaces(libc: ctypes.PyDLL) -> int:
    """Like os.fork, but the child is process 1 of new namespaces.

    One clone instead of unshare and fork: a process can unshare its process namespace only once, and the server goes
    on to serve other programs.
    """
    python: Any = ctypes.pythonapi
    number = CLONE_NUMBERS[platform.machine()]
    python.PyOS_BeforeFork()
    pid = libc.syscall(number, ctypes.c_ulong(NEW_MOUNTS | NEW_PIDS | CHILD_SIGNAL), None, None, None, None)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    return check_result(pid, "clone")


def mount(libc: ctypes.PyDLL, source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    check_result(
        libc.mount(
            source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), data.encode()
        ),
        f"mount {target}",
    )


def mount_private_dirs(libc: ctypes.PyDLL, tmp_mb: int) -> None:
    """Mount a new /tmp and /dev/shm that share one size limit, new terminals, and a /proc with only the program's
    processes."""
    mount(libc, "none", "/", None, RECURSIVE | PRIVATE)
    mount(libc, "tmpfs", "/tmp", "tmpfs", NO_SETUID | NO_DEVICES, f"size={tmp_mb}m,nr_inodes=16384,mode=1777")  # noqa: S108 - mounted here
    os.mkdir("/tmp/.shm", 0o777)  # noqa: PTH102, S108 - pathlib costs an import in every jail
    mount(libc, "/tmp/.shm", "/dev/shm", None, BIND)  # noqa: S108 - as above
    # All terminals of the host share one limit.
    mount(libc, "devpts", "/dev/pts", "devpts", NO_SETUID | NO_EXEC, f"newinstance,ptmxmode=0666,max={MAX_TERMINALS}")
    mount(libc, "proc", "/proc", "proc", NO_SETUID | NO_DEVICES | NO_EXEC)


def make_proc_read_only(libc: ctypes.PyDLL) -> None:
    """Kernel parameters of the jail would outlive the program that changed them: the next one could read them."""
    mount(libc, "none", "/proc", None, REMOUNT | BIND | READ_ONLY | NO_SETUID | NO_DEVICES | NO_EXEC)


def set_limits(limits: dict[str, Any], own_processes: int) -> None:
    """`own_processes`: processes of the jail itself that count against the program's limit; -1 where the kernel counts
    all processes of the user, so that RLIMIT_NPROC is of no use (the server's monitor limits them instead)."""
    megabyte = 1 << 20
    pairs = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits["file_mb"] * megabyte),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ]
    if limits["memory_mb"]:
        pairs.append((resource.RLIMIT_AS, limits["memory_mb"] * megabyte))
    if own_processes >= 0:
        pairs.append((resource.RLIMIT_NPROC, limits["processes"] + own_processes))
    for which, maximum in pairs:
        hard = resource.getrlimit(which)[1]
        value = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(which, (value, value))
    if limits.get("cpu_s"):
        seconds = max(1, int(limits["cpu_s"] + 0.999))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def drop_privileges(libc: ctypes.PyDLL, code: bytes | None) -> None:
    """Drop all capabilities permanently, and install the seccomp filter."""
    libc.prctl(AMBIENT, 4, 0, 0, 0)
    for capability in range(CAPABILITIES):
        libc.prctl(DROP_BOUND, capability, 0, 0, 0)  # fails beyond the last capability, or if there is nothing to drop
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    check_result(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    check_result(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    if code:
        program = Filter(len(code) // 8, code)
        check_result(libc.prctl(SET_FILTER, 2, ctypes.byref(program), 0, 0), "seccomp")


def keep_only_fds(fds: dict[int, int]) -> None:
    """Move each file descriptor to its number, and close all others."""
    # Move them above the targets first: one may occupy the number of another.
    parked = {target: _above(fd, 500) for target, fd in fds.items()}
    for target, fd in parked.items():
        os.dup2(fd, target)
    low = 0
    for target in [*sorted(fds), 1 << 20]:
        if low < target:  # an empty range would close everything: the kernel would get -1 as its end
            os.closerange(low, target)
        low = target + 1


def _above(fd: int, lowest: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD, lowest)


def try_in_child(action: Callable[[], None]) -> str:
    """Run `action` in a forked child. Returns its error, or an empty string."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - reported to the parent
            os.write(theirs, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(theirs)
    message = os.read(ours, 4096).decode()
    os.close(ours)
    os.waitpid(pid, 0)
    return message
