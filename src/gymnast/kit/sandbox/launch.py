"""How a jail is started, as command lines: pure, one function for each driver.

bubblewrap makes the walls: namespaces for users, processes, network, IPC, host name and cgroups, a read-only system
with only what a program needs, and no way to further user namespaces. The server inside is process 1 and keeps, in
that jail's own user namespace only, the privilege to make a fresh process namespace and /tmp for each program.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gymnast.kit.sandbox.interface import Limits
from gymnast.kit.sandbox.interpreter import Interpreter

NOBODY: Final = "65534"
SERVER_CAPABILITIES: Final = ("CAP_SYS_ADMIN", "CAP_SETPCAP", "CAP_SYS_PTRACE")
"""To unshare and mount, to drop for good, and to read how much memory a program has. Gone before a program starts."""
_NO_PRIVILEGES: Final = ("--cap-drop", "ALL")
MERGED: Final = ("bin", "sbin", "lib", "lib32", "lib64")
FILES: Final = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/nsswitch.conf", "/etc/mime.types")


PULL_S: Final = 600.0
"""The first container may have to wait for its image."""
FIRST_WORDS: Final = """
import sys
stream = sys.stdin.buffer.raw
size, text = int(stream.readline()), b""
while len(text) < size:
    text += stream.read(size - len(text))
exec(text)
"""
"""The server's source comes over its standard input, a line with its size before it: nothing of ours is mounted."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One driver's way to start a jail."""

    argv: tuple[str, ...]
    nest: bool
    """Whether the server may try to keep several programs apart by itself; else a jail serves one."""
    has_walls: bool = True
    stop: tuple[str, ...] = ()
    """What else must run to end it, when killing the command does not."""
    start_s: float = 30.0
    bounds: Limits | None = None
    """What the walls themselves allow, where that is fixed from the start."""

    def allows(self, limits: Limits) -> bool:
        """Whether a program with these limits gets all of them."""
        most = self.bounds
        return most is None or (
            most.memory_mb >= limits.memory_mb and most.processes >= limits.processes and most.tmp_mb >= limits.tmp_mb
        )


def environment(python_folder: str) -> dict[str, str]:
    """All that a program sees of an environment. A fixed hash seed: the same program gives the same output."""
    return {
        "PATH": f"{python_folder}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108 - the jail's own
        "TMPDIR": "/tmp",  # noqa: S108 - as above
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def python_argv(executable: str) -> list[str]:
    return [executable, "-s", "-c", FIRST_WORDS]


def bubblewrap(bwrap: str, python: Interpreter, *, visible_at: dict[Path, Path]) -> Launch:
    """`visible_at`: where a folder can be found by the user that bubblewrap runs as, if not at its own path."""
    words = [bwrap, *_walls()]
    for path in python.readable:
        words += ["--ro-bind", str(visible_at.get(path, path)), str(path)]
    for path in python.hidden:
        if any(path.is_relative_to(outer) for outer in python.readable):
            words += ["--size", "4096", "--tmpfs", str(path), "--remount-ro", str(path)]
    words += system()
    for name, value in environment(str(python.executable.parent)).items():
        words += ["--setenv", name, value]
    words += ["--chdir", "/", "--", *python_argv(str(python.executable))]
    return Launch(tuple(words), nest=True)


def _walls() -> list[str]:
    words = [*user_walls(), "--unshare-net"]
    for capability in SERVER_CAPABILITIES:
        words += ["--cap-add", capability]
    return [*words, "--new-session", "--die-with-parent", "--as-pid-1", "--clearenv"]


def user_walls() -> list[str]:
    """Everything apart but the network, as a user without privileges."""
    words = ["--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    return [*words, "--unshare-cgroup-try", "--uid", NOBODY, "--gid", NOBODY, "--hostname", "sandbox", *_NO_PRIVILEGES]


def system(*, more_files: Sequence[str] = (), in_tmp: Sequence[str] = ()) -> list[str]:
    """The system, read only, and a /tmp of the jail's own; `in_tmp` are words that put something there."""
    words: list[str] = []
    for name in MERGED:
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", f"usr/{name}", str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    for file in (*FILES, *more_files):
        words += ["--ro-bind-try", file, file]
    # The sizes are for jails that cannot give each program a /tmp of its own.
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(64 << 20), "--tmpfs", "/dev/shm"]  # noqa: S108 - the jail's own
    words += ["--remount-ro", "/dev", "--size", str(64 << 20), "--tmpfs", "/tmp"]  # noqa: S108 - as above
    return [*words, *in_tmp, "--remount-ro", "/"]


def as_nobody(launch: Launch, mounts: dict[Path, Path]) -> Launch:
    """The same jail started by root as a user that owns nothing: root's number inside would own the host's files and
    would be exempt from the limit on processes. `mounts` shows folders to that user that it could not reach."""
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *launch.argv]
    if not mounts:
        return replace(launch, argv=tuple(become))
    holder = next(iter(mounts.values())).parent
    steps = ["set -e", f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(holder))}"]
    for real, shown in mounts.items():
        steps += [
            f"mkdir {shlex.quote(str(shown))}",
            f"mount --bind {shlex.quote(str(real))} {shlex.quote(str(shown))}",
        ]
    script = "; ".join([*steps, 'exec "$@"'])
    return replace(launch, argv=("unshare", "--mount", "sh", "-c", script, "sh", *become))


def in_groups(launch: Launch, procs: Sequence[Path]) -> Launch:
    """The same jail inside of control groups, which it enters before anything else of it exists."""
    if not procs:
        return launch
    script = "; ".join([*(f"echo $$ > {shlex.quote(str(file))}" for file in procs), 'exec "$@"'])
    return replace(launch, argv=("sh", "-c", script, "sh", *launch.argv))


def container(program: str, image: str, name: str, limits: Limits) -> Launch:
    """Docker or Podman: one container for each program; the server's command line is the container's."""
    words = [program, "run", "--rm", "--interactive", "--name", name, "--network", "none", "--read-only"]
    words += ["--user", f"{NOBODY}:{NOBODY}", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    words += ["--memory", f"{limits.memory_mb + limits.tmp_mb + 64}m", "--pids-limit", str(limits.processes + 8)]
    words += ["--memory-swap", f"{limits.memory_mb + limits.tmp_mb + 64}m", "--ipc", "private", "--hostname", "sandbox"]
    words += ["--ulimit", "core=0:0", "--ulimit", "nofile=512:512", "--ulimit", f"nproc={limits.processes + 64}"]
    words += ["--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.tmp_mb}m,mode=1777", "--workdir", "/"]  # noqa: S108 - the jail's own
    words += ["--shm-size", f"{limits.tmp_mb}m", "--pull", "missing"]
    for key, value in environment("/usr/local/bin").items():
        words += ["--env", f"{key}={value}"]
    words += ["--entrypoint", "python3", image, *python_argv("python3")[1:]]
    return Launch(tuple(words), nest=False, stop=(program, "rm", "--force", name), start_s=PULL_S, bounds=limits)


def apptainer(program: str, image: str) -> Launch:
    """Apptainer (or Singularity under its old name): one instance for each program."""
    words = [program, "--silent", "exec", "--containall", "--cleanenv", "--no-home", "--no-init", "--no-privs"]
    words += ["--no-mount", "bind-paths", "--net", "--network", "none", "--pid", "--ipc", "--uts", "--pwd", "/"]
    words += ["--no-eval", "--userns", "--writable-tmpfs"]
    for key, value in environment("/usr/local/bin").items():
        words += ["--env", f"{key}={value}"]
    return Launch((*words, image, *python_argv("python3")), nest=False, start_s=PULL_S)


def bare(python: Interpreter) -> Launch:
    """No walls: limits, a deadline and a process tree that is killed, and that is all."""
    words = ["env", "--ignore-environment"]
    words += [f"{name}={value}" for name, value in environment(str(python.executable.parent)).items()]
    return Launch((*words, *python_argv(str(python.executable))), nest=False, has_walls=False)
