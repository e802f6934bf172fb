"""A command behind walls: its own folders to write, the system and named folders to read, nothing else of the machine.

The walls are those of programs (see `launch`), with one door: the network is the machine's, because such a command must
reach the policy. So it is kept from files and processes, and not from whatever listens on the network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import Field

from gymnast.errors import UserError
from gymnast.kit.sandbox import launch
from gymnast.kit.sandbox.launch import NOBODY, Launch
from gymnast.kit.sandbox.opening import anybody_reaches, bubblewrap_program, walled
from gymnast.kit.settings import Settings

_FOR_NETWORK: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/etc/ca-certificates", "/etc/passwd")


class CommandSandboxSettings(Settings):
    """The `sandbox` block of an agent that runs commands."""

    read_only: tuple[Path, ...] = Field(default=())
    """Folders that the command may read besides the system's: its interpreter, its packages, its sources."""


class CommandJail:
    """Turns commands into commands behind walls."""

    def __init__(self, program: str, readable: Sequence[Path]) -> None:
        self._program = program
        self._readable = readable

    def wrapped(self, argv: Sequence[str], cwd: Path, folders: Sequence[Path]) -> tuple[str, ...]:
        """The command line that runs `argv` in `cwd`, with `folders` to write."""
        for folder in folders:
            _hand_over(folder)

        def build(visible_at: Mapping[Path, Path]) -> Launch:
            return Launch(command_line(self._program, argv, cwd, self._readable, folders, visible_at), nest=False)

        return walled(self._readable, build).argv


async def open_command_jail(settings: CommandSandboxSettings) -> CommandJail:
    """A jail for commands; raises UserError, saying what to install or set, when it cannot be had."""
    folders = [folder.expanduser().resolve() for folder in settings.read_only]
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"the command cannot be shown {folder}", where="sandbox.read_only", next="name folders")
    return CommandJail(await bubblewrap_program(), [Path("/usr"), *folders])


def command_line(
    program: str,
    argv: Sequence[str],
    cwd: Path,
    readable: Sequence[Path],
    folders: Sequence[Path],
    visible_at: Mapping[Path, Path],
) -> tuple[str, ...]:
    """Pure: bubblewrap and its words."""
    words = [program, *launch.user_walls(), "--die-with-parent", "--new-session"]
    for path in readable:
        words += ["--ro-bind", str(visible_at.get(path, path)), str(path)]
    own = [word for folder in folders for word in ("--bind", str(folder), str(folder))]
    words += launch.system(more_files=_FOR_NETWORK, in_tmp=own)
    return (*words, "--chdir", str(cwd), "--", *argv)


def _hand_over(folder: Path, chown: Callable[[Path, int, int], None] = os.chown) -> None:
    """Root starts jails as nobody: then the folder must be nobody's."""
    if os.geteuid() != 0:
        return
    if not all(anybody_reaches(parent) for parent in folder.parents):
        raise UserError(
            f"the sandbox cannot reach {folder}", where="scratch_dir", next="choose a folder that every user may enter"
        )
    for path in (folder, *folder.rglob("*")):
        chown(path, int(NOBODY), int(NOBODY))
