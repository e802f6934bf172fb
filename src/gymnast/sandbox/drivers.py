"""Opens a sandbox with the configured driver, or says what is missing. Never falls back to a weaker driver."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from gymnast.errors import UserError
from gymnast.sandbox import cgroups, launch
from gymnast.sandbox.interface import Limits, Sandbox, SandboxError
from gymnast.sandbox.interpreter import find_interpreter
from gymnast.sandbox.jail import Jail, start_jail
from gymnast.sandbox.launch import Launch
from gymnast.sandbox.pool import JailPool
from gymnast.sandbox.readable_copies import readable_copies
from gymnast.sandbox.seccomp import MACHINES
from gymnast.sandbox.settings import SandboxSettings

Launcher = Callable[[Limits], Launch]
MOUNT_POINTS: Final = ("/mnt", "/srv", "/opt", "/media")
"""Folders that are empty on every system: in a private mount namespace, one of them shows what only root can reach."""
MIN_BUBBLEWRAP: Final = (0, 8)
USERNS_HINT: Final = (
    "allow unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone,"
    " kernel.apparmor_restrict_unprivileged_userns), or set another sandbox.driver"
)
INSTALL_HINTS: Final = {
    "bubblewrap": "install it (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap)",
    "setpriv": "install util-linux",
    "docker": "install and start Docker",
    "podman": "install it (apt install podman)",
    "apptainer": "install it (https://apptainer.org)",
}


@contextlib.asynccontextmanager
async def open_sandbox(settings: SandboxSettings) -> AsyncIterator[Sandbox]:
    """Open a sandbox as configured. Raises UserError, with what to install or set, where it does not work."""
    async with contextlib.AsyncExitStack() as stack:
        make_launch, environment = await _choose_launcher(settings, stack)
        yield await stack.enter_async_context(_open_pool(settings, make_launch, environment))


@contextlib.asynccontextmanager
async def _open_pool(
    settings: SandboxSettings, make_launch: Launcher, environment: dict[str, str]
) -> AsyncIterator[JailPool]:
    cgroup_parents = cgroups.find_cgroup_parents(settings.cgroup) if settings.driver in ("auto", "bubblewrap") else ()
    cgroups.remove_stale_cgroups(cgroup_parents)

    async def open_jail(limits: Limits) -> Jail:
        group = cgroups.create_cgroup(cgroup_parents, uuid.uuid4().hex[:8])
        jail = await start_jail(launch.enter_cgroups(make_launch(limits), group.procs if group else ()), group)
        try:
            await jail.handshake(settings.preload, environment)
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
    await _warm_up(pool, settings.driver)
    try:
        yield pool
    finally:
        await pool.close()


async def _warm_up(pool: JailPool, driver: str) -> None:
    """Start one jail now, so that a driver that does not work here fails before the first program."""
    try:
        await pool.warm()
    except SandboxError as error:
        raise UserError(
            f"the sandbox ({driver}) does not start: {error}",
            where="sandbox.driver",
            next=USERNS_HINT
            if driver in ("auto", "bubblewrap")
            else f"run {driver} by hand with the image in sandbox.image, or set another driver",
        ) from error


async def _choose_launcher(
    settings: SandboxSettings, stack: contextlib.AsyncExitStack
) -> tuple[Launcher, dict[str, str]]:
    """How to start a jail, and the environment variables of its programs. `stack` keeps what jails need."""
    driver = settings.driver
    if driver != "none" and platform.machine() not in MACHINES:
        raise UserError(
            f"no seccomp filter for the architecture {platform.machine()}",
            where="sandbox.driver",
            next=f"use one of: {', '.join(MACHINES)}",
        )
    if driver in ("docker", "podman"):
        program = _find_program(driver)
        return (
            lambda limits: launch.container(program, settings.image, f"gymnast-{uuid.uuid4().hex}", limits),
            launch.environment("/usr/local/bin"),
        )
    if driver == "apptainer":
        program = _find_program("apptainer", "singularity")
        return lambda _: launch.apptainer(program, settings.image), launch.environment("/usr/local/bin")
    if driver == "none" and not settings.unsafe_no_sandbox:
        raise UserError(
            "driver 'none' runs model-written programs unsandboxed, as your user",
            where="sandbox.driver",
            next="install bubblewrap, or set unsafe_no_sandbox: true to accept that",
        )
    python = await find_interpreter(settings)
    environment = launch.environment(str(python.executable.parent))
    if driver == "none":
        return lambda _: launch.bare(python), environment
    program = await find_bubblewrap()
    python = replace(python, packages=stack.enter_context(readable_copies(python.packages)))
    jail = isolate_launch(
        (*python.readable, *python.packages),
        lambda visible_at: launch.bubblewrap(program, python, visible_at=dict(visible_at)),
    )
    return lambda _: jail, environment


def isolate_launch(readable: Sequence[Path], build: Callable[[Mapping[Path, Path]], Launch]) -> Launch:
    """A jail started as this user or, by root, as `nobody`. `build` gets the paths at which that user finds folders."""
    if os.geteuid() != 0:
        return build({})
    _find_program("setpriv")
    mount_point = next((Path(path) for path in MOUNT_POINTS if Path(path).is_dir()), Path("/mnt"))
    unreachable = [path for path in readable if not is_world_readable(path)]
    visible_at = {path: mount_point / str(index) for index, path in enumerate(unreachable)}
    return launch.run_as_nobody(build(visible_at), visible_at)


async def find_bubblewrap() -> str:
    """The path of bubblewrap, 0.8 or newer: older ones cannot disable further user namespaces or limit a tmpfs."""
    program = _find_program("bubblewrap")
    process = await asyncio.create_subprocess_exec(program, "--version", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    version = tuple(int(part) for part in re.findall(rb"\d+", output)[:2])
    if version < MIN_BUBBLEWRAP:
        raise UserError(
            f"bubblewrap is too old: {output.decode(errors='replace').strip()}",
            where=program,
            next="install bubblewrap 0.8 or newer, or set sandbox.driver to docker, podman or apptainer",
        )
    return program


def is_world_readable(path: Path) -> bool:
    """Whether every user can read and enter the folder."""
    return path.stat().st_mode & 0o5 == 0o5 and all(parent.stat().st_mode & 0o1 for parent in path.parents)


def _find_program(name: str, *others: str) -> str:
    """Its path. Raises UserError with how to install it."""
    for candidate in (name, *others):
        path = shutil.which("bwrap" if candidate == "bubblewrap" else candidate)
        if path:
            return path
    raise UserError(
        f"the sandbox needs {name}, which is not installed",
        where="sandbox.driver",
        next=f"{INSTALL_HINTS[name]}; to run programs unsandboxed, set driver: none and unsafe_no_sandbox: true",
    )
