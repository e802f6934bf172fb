"""How each driver starts a jail, as command lines. Pure.

bubblewrap isolates a jail with namespaces for users, processes, network, IPC, host name and cgroups, and a read-only
system with only what a program needs; further user namespaces are disabled. The server inside is process 1. Only within
the jail's own user namespace does it keep the privilege to create a new process namespace and /tmp for each program.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gymnast.sandbox.containers import apptainer_exec, docker_remove, docker_run
from gymnast.sandbox.interface import Limits
from gymnast.sandbox.interpreter import Interpreter

NOBODY: Final = "65534"
SERVER_CAPABILITIES: Final = ("CAP_SYS_ADMIN", "CAP_SETPCAP", "CAP_SYS_PTRACE")
"""To unshare and mount, to drop capabilities permanently, and to read a program's memory use. Dropped for programs."""
_NO_PRIVILEGES: Final = ("--cap-drop", "ALL")
MERGED: Final = ("bin", "sbin", "lib", "lib32", "lib64")
FILES: Final = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/nsswitch.conf", "/etc/mime.types")
_MAX_OF_USER: Final = 8192
"""Processes and threads of a container's user. The kernel counts all of them on the host, other jails' and other
programs' too, so that a jail's own limit must be another: its control group, and the server's monitor."""
PULL_TIMEOUT_S: Final = 600.0
"""The first container may have to pull its image."""
BOOTSTRAP: Final = """
import sys
stream = sys.stdin.buffer.raw
size, text = int(stream.readline()), b""
while len(text) < size:
    text += stream.read(size - len(text))
exec(text)
"""
"""Reads the server's source from standard input, after a line with its size: none of our files is mounted."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One driver's way to start a jail."""

    argv: tuple[str, ...]
    nest: bool
    """Whether the server may try to isolate several programs from each other; otherwise a jail serves one."""
    is_isolated: bool = True
    stop: tuple[str, ...] = ()
    """A command that ends the jail, where killing `argv` is not enough."""
    start_timeout_s: float = 30.0
    fixed_limits: Limits | None = None
    """The limits of the jail itself, where they are fixed when it starts."""

    def allows(self, limits: Limits) -> bool:
        """Whether a program with these limits gets all of them."""
        fixed = self.fixed_limits
        return fixed is None or (
            fixed.memory_mb >= limits.memory_mb
            and fixed.processes >= limits.processes
            and fixed.tmp_mb >= limits.tmp_mb
        )


PACKAGES: Final = Path("/packages")
"""Where programs find the packages of our own Python that they may import."""


def environment(python_folder: str) -> dict[str, str]:
    """All environment variables of a program. The hash seed is fixed: the same program gives the same output."""
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
    return [executable, "-s", "-c", BOOTSTRAP]


def bubblewrap(bwrap: str, python: Interpreter, *, visible_at: dict[Path, Path]) -> Launch:
    """`visible_at`: where the user that bubblewrap runs as finds a folder, if not at its own path."""
    argv = [bwrap, *_jail_options()]
    for path in python.readable:
        argv += ["--ro-bind", str(visible_at.get(path, path)), str(path)]
    for path in python.hidden:
        if any(path.is_relative_to(outer) for outer in python.readable):
            argv += ["--size", "4096", "--tmpfs", str(path), "--remount-ro", str(path)]
    for path in python.packages:
        argv += ["--ro-bind", str(visible_at.get(path, path)), str(PACKAGES / path.name)]
    argv += system_mounts()
    variables = environment(str(python.executable.parent))
    if python.packages:
        variables["PYTHONPATH"] = str(PACKAGES)
    for name, value in variables.items():
        argv += ["--setenv", name, value]
    argv += ["--chdir", "/", "--", *python_argv(str(python.executable))]
    return Launch(tuple(argv), nest=True)


def _jail_options() -> list[str]:
    options = [*isolation_options(), "--unshare-net"]
    for capability in SERVER_CAPABILITIES:
        options += ["--cap-add", capability]
    return [*options, "--new-session", "--die-with-parent", "--as-pid-1", "--clearenv"]


def isolation_options() -> list[str]:
    """Isolation from everything but the network, as a user without privileges."""
    options = ["--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    options += ["--unshare-cgroup-try", "--uid", NOBODY, "--gid", NOBODY, "--hostname", "sandbox"]
    return [*options, *_NO_PRIVILEGES]


def system_mounts(*, more_files: Sequence[str] = (), in_tmp: Sequence[str] = ()) -> list[str]:
    """The system, read-only, and the jail's own /tmp; `in_tmp` are options that mount something there."""
    options: list[str] = []
    for name in MERGED:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", f"usr/{name}", str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for file in (*FILES, *more_files):
        options += ["--ro-bind-try", file, file]
    # The sizes are for jails that cannot give each program its own /tmp.
    options += ["--proc", "/proc", "--dev", "/dev", "--size", str(64 << 20), "--tmpfs", "/dev/shm"]  # noqa: S108 - the jail's own
    options += ["--remount-ro", "/dev", "--size", str(64 << 20), "--tmpfs", "/tmp"]  # noqa: S108 - as above
    return [*options, *in_tmp, "--remount-ro", "/"]


def run_as_nobody(launch: Launch, mounts: dict[Path, Path]) -> Launch:
    """The same jail started by root as the user `nobody`: uid 0 inside would own the host's files and would be exempt
    from the limit on processes. `mounts` shows that user folders that it could not reach."""
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *launch.argv]
    if not mounts:
        return replace(launch, argv=tuple(become))
    mount_point = next(iter(mounts.values())).parent
    steps = ["set -e", f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(mount_point))}"]
    for source, target in mounts.items():
        steps += [
            f"mkdir {shlex.quote(str(target))}",
            f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(target))}",
        ]
    script = "; ".join([*steps, 'exec "$@"'])
    return replace(launch, argv=("unshare", "--mount", "sh", "-c", script, "sh", *become))


def enter_cgroups(launch: Launch, procs: Sequence[Path]) -> Launch:
    """The same jail in control groups, which it enters before anything else."""
    if not procs:
        return launch
    script = "; ".join([*(f"echo $$ > {shlex.quote(str(file))}" for file in procs), 'exec "$@"'])
    return replace(launch, argv=("sh", "-c", script, "sh", *launch.argv))


def container(program: str, image: str, name: str, limits: Limits) -> Launch:
    """Docker or Podman: one container per program, which runs the jail's server."""
    memory_mb = limits.memory_mb + limits.tmp_mb + 64
    options = ["--read-only", "--user", f"{NOBODY}:{NOBODY}", "--cap-drop", "ALL"]
    options += ["--security-opt", "no-new-privileges", "--pids-limit", str(limits.processes + 8)]
    options += ["--memory-swap", f"{memory_mb}m", "--ipc", "private", "--hostname", "sandbox"]
    options += ["--ulimit", "core=0:0", "--ulimit", "nofile=512:512", "--ulimit", f"nproc={_MAX_OF_USER}"]
    options += ["--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.tmp_mb}m,mode=1777"]  # noqa: S108 - the jail's own
    options += ["--shm-size", f"{limits.tmp_mb}m"]
    argv = docker_run(
        program,
        image,
        python_argv("python3"),
        name=name,
        mode=("--rm", "--interactive"),
        options=options,
        network="none",
        workdir="/",
        memory_mb=memory_mb,
        env=environment("/usr/local/bin"),
    )
    stop = docker_remove(program, name)
    return Launch(tuple(argv), nest=False, stop=stop, start_timeout_s=PULL_TIMEOUT_S, fixed_limits=limits)


def apptainer(program: str, image: str) -> Launch:
    """Apptainer (or Singularity, its former name): one instance per program."""
    options = ["--containall", "--cleanenv", "--no-home", "--no-init", "--no-privs"]
    options += ["--no-mount", "bind-paths", "--net", "--network", "none", "--pid", "--ipc", "--uts"]
    options += ["--no-eval", "--userns", "--writable-tmpfs"]
    env = environment("/usr/local/bin")
    argv = apptainer_exec(program, image, python_argv("python3"), silent=True, options=options, workdir="/", env=env)
    return Launch(tuple(argv), nest=False, start_timeout_s=PULL_TIMEOUT_S)


def bare(python: Interpreter) -> Launch:
    """No isolation: limits, a deadline, and a process tree that is killed."""
    argv = ["env", "--ignore-environment"]
    argv += [f"{name}={value}" for name, value in environment(str(python.executable.parent)).items()]
    return Launch((*argv, *python_argv(str(python.executable))), nest=False, is_isolated=False)
