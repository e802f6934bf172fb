"""The seccomp filter of a jailed program, as BPF code: the system calls that it may not make.

A deny list, because model-written programs use whatever their language's runtime uses. It denies calls that reach
rarely used parts of the kernel, other processes, or memory that no limit counts. Numbers above those in the table are
denied too, so that a newer kernel adds nothing.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
ERRNO: Final = 0x00050000

NEW_NAMESPACES: Final = 0x7E020080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME (NEWTIME shares bits with the signal)."""
CLONE_NAMESPACES: Final = NEW_NAMESPACES & ~0xFF
SOCKET_FAMILIES: Final = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6. Others bypass the network namespace: AF_VSOCK reaches a virtual machine's host."""
PAIR_FAMILIES: Final = (1,)
"""AF_UNIX."""
SIGNAL_COMMANDS: Final = (10,)
"""F_SETSIG chooses the signal that the kernel sends about a file: SIGCONT would wake up a stopped session."""
TERMINAL_IOCTLS: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX type into terminals."""

# name: (x86_64, aarch64); None where the architecture has no such call
REFUSED: Final[dict[str, tuple[int | None, int | None]]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),  # contexts count against a host-wide limit
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "personality": (135, 92),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "lookup_dcookie": (212, 18),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "uselib": (134, None),
    "_sysctl": (156, None),
    "ustat": (136, None),
    "nfsservctl": (180, 42),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    # memory that neither the address-space limit nor the size of /tmp counts
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
ABSENT: Final[dict[str, tuple[int, int]]] = {"clone3": (435, 435), "timer_create": (222, 107)}
"""Answered with ENOSYS, after which C libraries and tools use others: a filter cannot read what is in memory, such as
clone3's flags, or the signal of a timer (SIGCONT would wake up a stopped session)."""
HIGHEST_KNOWN: Final = 462


@dataclass(frozen=True, slots=True)
class Machine:
    """What differs between architectures."""

    audit: int
    column: int
    clone: int
    socket: int
    socketpair: int
    ioctl: int
    fcntl: int
    prlimit64: int
    setpriority: int
    ioprio_set: int
    sched_set: tuple[int, ...]
    """sched_setparam, sched_setscheduler, sched_setaffinity and sched_setattr."""
    foreign_bit: int | None
    """Calls with this bit belong to another ABI of the same architecture (x32)."""


MACHINES: Final = {
    "x86_64": Machine(
        *(0xC000003E, 0),
        clone=56,
        socket=41,
        socketpair=53,
        ioctl=16,
        fcntl=72,
        prlimit64=302,
        setpriority=141,
        ioprio_set=251,
        sched_set=(142, 144, 203, 314),
        foreign_bit=0x40000000,
    ),
    "aarch64": Machine(
        *(0xC00000B7, 1),
        clone=220,
        socket=198,
        socketpair=199,
        ioctl=29,
        fcntl=25,
        prlimit64=261,
        setpriority=140,
        ioprio_set=30,
        sched_set=(118, 119, 122, 274),
        foreign_bit=None,
    ),
}

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16


def build_filter(machine: str) -> bytes | None:
    """The filter for `machine` (as in `platform.machine()`), or None where there is no table for it."""
    abi = MACHINES.get(machine)
    if abi is None:
        return None
    code = [_op(LOAD, ARCHITECTURE_AT), _op(EQUAL, abi.audit, 1, 0), _op(RETURN, KILL), _op(LOAD, NUMBER_AT)]
    if abi.foreign_bit:
        code += [_op(AT_LEAST, abi.foreign_bit, 0, 1), _op(RETURN, KILL)]
    code += [_op(AT_LEAST, HIGHEST_KNOWN + 1, 0, 1), _refuse(errno.ENOSYS)]
    for numbers in ABSENT.values():
        code += _when(numbers[abi.column], [_refuse(errno.ENOSYS)])
    for number in sorted({number for numbers in REFUSED.values() if (number := numbers[abi.column]) is not None}):
        code += _when(number, [_refuse(errno.EPERM)])
    code += _when(abi.clone, _if_any_bit(0, CLONE_NAMESPACES))
    code += _when(abi.socket, _unless_one_of(0, SOCKET_FAMILIES, errno.EAFNOSUPPORT))
    code += _when(abi.socketpair, _unless_one_of(0, PAIR_FAMILIES, errno.EAFNOSUPPORT))
    code += _when(abi.fcntl, _if_one_of(1, SIGNAL_COMMANDS))
    code += _when(abi.ioctl, _if_one_of(1, TERMINAL_IOCTLS))
    code += _when(abi.prlimit64, _unless_one_of(0, (0,), errno.EPERM))
    # Process 1 watches the program; where both are the same user, it could otherwise be starved.
    for number in abi.sched_set:
        code += _when(number, _if_one_of(0, (1,)))
    for number, this_process in ((abi.setpriority, 0), (abi.ioprio_set, 1)):
        others = [_argument(0), _op(EQUAL, this_process, 1, 0), _refuse(errno.EPERM)]
        code += _when(number, [*others, *_if_one_of(1, (1,))])
    return b"".join([*code, _op(RETURN, ALLOW)])


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _op(RETURN, ERRNO | number)


def _when(number: int, body: Sequence[bytes]) -> list[bytes]:
    """Run `body` for this system call. Its number is in the accumulator before and after."""
    return [_op(EQUAL, number, 0, len(body)), *body]


def _argument(index: int) -> bytes:
    return _op(LOAD, ARGUMENTS_AT + 8 * index)


def _if_any_bit(index: int, bits: int) -> list[bytes]:
    return [_argument(index), _op(ANY_BIT, bits, 0, 1), _refuse(errno.EPERM), _op(RETURN, ALLOW)]


def _if_one_of(index: int, values: Sequence[int]) -> list[bytes]:
    tests = [part for value in values for part in (_op(EQUAL, value, 0, 1), _refuse(errno.EPERM))]
    return [_argument(index), *tests, _op(RETURN, ALLOW)]


def _unless_one_of(index: int, values: Sequence[int], error: int) -> list[bytes]:
    tests = [part for value in values for part in (_op(EQUAL, value, 0, 1), _op(RETURN, ALLOW))]
    return [_argument(index), *tests, _refuse(error)]
