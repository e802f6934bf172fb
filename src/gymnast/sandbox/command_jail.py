"""A jail for commands: they write to their own folders, read the system and the named folders, and see no other files.

The isolation is that of programs (see `launch`), except for the network: it is the host's, because such a command must
reach the policy. So the command is kept from files and processes, not from what listens on the network.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import Field

from gymnast.config.server_settings import Settings
from gymnast.errors import UserError
from gymnast.sandbox import launch
from gymnast.sandbox.drivers import find_bubblewrap, is_world_readable, isolate_launch
from gymnast.sandbox.launch import NOBODY, Launch

_NETWORK_FILES: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/etc/ca-certificates", "/etc/passwd")


class CommandSandboxSettings(Settings):
    """The `sandbox` block of an agent that runs commands."""

    read_only: tuple[Path, ...] = Field(default=())
    """Folders that the command may read in addition to the system's: its interpreter, packages and sources."""


class CommandJail:
    """Wraps commands so that they run in a jail."""

    def __init__(self, program: str, readable: Sequence[Path]) -> None:
        self._program = program
        self._readable = readable

    def wrap(self, argv: Sequence[str], cwd: Path, folders: Sequence[Path]) -> tuple[str, ...]:
        """The command line that runs `argv` jailed in `cwd`, with write access to `folders`."""
        for folder in folders:
            _make_writable(folder)

        def build(visible_at: Mapping[Path, Path]) -> Launch:
            return Launch(bubblewrap_command(self._program, argv, cwd, self._readable, folders, visible_at), nest=False)

        return isolate_launch(self._readable, build).argv


async def open_command_jail(settings: CommandSandboxSettings) -> CommandJail:
    """A jail for commands. Raises UserError, with what to install or set, where jails do not work."""
    folders = [folder.expanduser().resolve() for folder in settings.read_only]
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a directory", where="sandbox.read_only", next="list existing directories")
    return CommandJail(await find_bubblewrap(), [Path("/usr"), *folders])


def bubblewrap_command(
    program: str,
    argv: Sequence[str],
    cwd: Path,
    readable: Sequence[Path],
    folders: Sequence[Path],
    visible_at: Mapping[Path, Path],
) -> tuple[str, ...]:
    """The bubblewrap command line. Pure."""
    options = [program, *launch.isolation_options(), "--die-with-parent", "--new-session"]
    for path in readable:
        options += ["--ro-bind", str(visible_at.get(path, path)), str(path)]
    writable = [word for folder in folders for word in ("--bind", str(folder), str(folder))]
    options += launch.system_mounts(more_files=_NETWORK_FILES, in_tmp=writable)
    return (*options, "--chdir", str(cwd), "--", *argv)


def _make_writable(folder: Path) -> None:
    """Give the folder to the user `nobody` if we are root, which starts jails as that user."""
    if os.geteuid() != 0:
        return
    if not all(is_world_readable(parent) for parent in folder.parents):
        raise UserError(
            f"the sandbox cannot reach {folder}",
            where="scratch_dir",
            next="choose a directory that every user can enter",
        )
    for path in (folder, *folder.rglob("*")):
        os.chown(path, int(NOBODY), int(NOBODY))
