"""From settings to a sandbox that works, or to what is missing. Never to something weaker than asked for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from gymnast.errors import UserError
from gymnast.kit.sandbox import cgroups, launch
from gymnast.kit.sandbox.interface import Limits, Sandbox, SandboxError
from gymnast.kit.sandbox.interpreter import Interpreter, interpreter_for
from gymnast.kit.sandbox.jail import Jail, started
from gymnast.kit.sandbox.launch import Launch
from gymnast.kit.sandbox.pool import JailPool
from gymnast.kit.sandbox.seccomp import MACHINES
from gymnast.kit.sandbox.settings import SandboxSettings

Launcher = Callable[[Limits], Launch]
HOLDERS: Final = ("/mnt", "/srv", "/opt", "/media")
"""Empty folders of every system: one of them, in a mount namespace of its own, shows what only root can reach."""
OLDEST_BUBBLEWRAP: Final = (0, 8)
REPAIR: Final = (
    "allow unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone,"
    " kernel.apparmor_restrict_unprivileged_userns), or set another sandbox.driver"
)
INSTALL: Final = {
    "bubblewrap": "install it (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap)",
    "setpriv": "install util-linux",
    "docker": "install Docker and start it",
    "podman": "install it (apt install podman)",
    "apptainer": "install it (https://apptainer.org)",
}


@contextlib.asynccontextmanager
async def open_sandbox(settings: SandboxSettings) -> AsyncIterator[Sandbox]:
    """A sandbox as configured; raises UserError, saying what to install or set, when it cannot be had."""
    launcher, environment = await _launcher(settings)
    groups = cgroups.places(settings.cgroup) if settings.driver in ("auto", "bubblewrap") else ()
    cgroups.sweep(groups)

    async def open_jail(limits: Limits) -> Jail:
        group = cgroups.make(groups, uuid.uuid4().hex[:8])
        jail = await started(launch.in_groups(launcher(limits), group.procs if group else ()), group)
        try:
            await jail.greet(settings.preload, environment)
        except BaseException:
            await jail.close()
            raise
        return jail

    pool = JailPool(
        open_jail,
        settings.limits.limits(),
        size=settings.pool_size or len(os.sched_getaffinity(0)),
        sessions=settings.session_limit,
        recycle_after=settings.recycle_after,
    )
    await _first(pool, settings.driver)
    try:
        yield pool
    finally:
        await pool.close()


async def _first(pool: JailPool, driver: str) -> None:
    """Start one jail now: a driver that does not work here says so before the first program."""
    try:
        await pool.warm()
    except SandboxError as error:
        raise UserError(
            f"the sandbox ({driver}) does not start: {error}",
            where="sandbox.driver",
            next=REPAIR
            if driver in ("auto", "bubblewrap")
            else f"try {driver} by hand with sandbox.image, or another driver",
        ) from error


async def _launcher(settings: SandboxSettings) -> tuple[Launcher, dict[str, str]]:
    """How each jail is started, and what its programs' environment holds."""
    driver = settings.driver
    if driver != "none" and platform.machine() not in MACHINES:
        raise UserError(
            f"there is no filter of system calls for {platform.machine()}",
            where="sandbox.driver",
            next=f"run programs on one of: {', '.join(MACHINES)}",
        )
    if driver in ("docker", "podman"):
        program = _program(driver)
        return (
            lambda limits: launch.container(program, settings.image, f"gymnast-{uuid.uuid4().hex}", limits),
            launch.environment("/usr/local/bin"),
        )
    if driver == "apptainer":
        program = _program("apptainer", "singularity")
        return lambda _: launch.apptainer(program, settings.image), launch.environment("/usr/local/bin")
    if driver == "none" and not settings.unsafe_no_sandbox:
        raise UserError(
            "driver 'none' runs programs that a model wrote as you, on this machine",
            where="sandbox.driver",
            next="install bubblewrap, or set unsafe_no_sandbox: true if that is what you want",
        )
    python = await interpreter_for(settings)
    environment = launch.environment(str(python.executable.parent))
    if driver == "none":
        return lambda _: launch.bare(python), environment
    jail = _bubblewrap(await bubblewrap_program(), python)
    return lambda _: jail, environment


def _bubblewrap(program: str, python: Interpreter) -> Launch:
    return walled(python.readable, lambda visible_at: launch.bubblewrap(program, python, visible_at=dict(visible_at)))


def walled(readable: Sequence[Path], build: Callable[[Mapping[Path, Path]], Launch]) -> Launch:
    """A jail started as this user or, by root, as nobody; `build` is told where nobody finds what only root reaches."""
    if os.geteuid() != 0:
        return build({})
    _program("setpriv")
    holder = next((Path(path) for path in HOLDERS if Path(path).is_dir()), Path("/mnt"))
    unreachable = [path for path in readable if not anybody_reaches(path)]
    visible_at = {path: holder / str(index) for index, path in enumerate(unreachable)}
    return launch.as_nobody(build(visible_at), visible_at)


async def bubblewrap_program() -> str:
    """Where bubblewrap is, new enough; a UserError says what to install."""
    program = _program("bubblewrap")
    await _new_enough(program)
    return program


async def _new_enough(program: str) -> None:
    """Older ones cannot switch off further user namespaces, or bound a tmpfs."""
    asked = await asyncio.create_subprocess_exec(program, "--version", stdout=asyncio.subprocess.PIPE)
    said, _ = await asked.communicate()
    version = tuple(int(part) for part in re.findall(rb"\d+", said)[:2])
    if version < OLDEST_BUBBLEWRAP:
        raise UserError(
            f"bubblewrap is too old: {said.decode(errors='replace').strip()}",
            where=program,
            next="install bubblewrap 0.8 or newer, or set sandbox.driver to docker, podman or apptainer",
        )


def anybody_reaches(path: Path) -> bool:
    """Whether every user may read and enter the folder."""
    return path.stat().st_mode & 0o5 == 0o5 and all(parent.stat().st_mode & 0o1 for parent in path.parents)


def _program(name: str, *others: str) -> str:
    """Where it is, or what to do."""
    for candidate in (name, *others):
        found = shutil.which("bwrap" if candidate == "bubblewrap" else candidate)
        if found:
            return found
    raise UserError(
        f"the sandbox needs {name}, which is not installed",
        where="sandbox.driver",
        next=f"{INSTALL[name]}; without any, programs run unprotected only if you set driver: none and"
        " unsafe_no_sandbox: true",
    )
