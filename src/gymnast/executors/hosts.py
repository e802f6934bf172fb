"""Where a scheduler's commands run: on this machine, or on a login node over the user's ssh. Always with a timeout."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from gymnast.errors import NotFoundError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEADLINE_S: Final = 60.0
_SSH_FAILED: Final = 255
"""The exit code of ssh itself, when it could not run the command."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def error_text(self) -> str:
        """Why it failed."""
        return (self.err.strip() or self.out.strip() or f"exit code {self.code}")[-2000:]


class Host(Protocol):
    """Runs commands somewhere."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    def run(self, command: Sequence[str], *, timeout_s: float = DEADLINE_S) -> CommandResult:
        """Run a command until it ends. Raises UserError if it cannot be run, or not in time."""
        ...


@dataclass(frozen=True, slots=True)
class LocalHost:
    """Commands on this machine."""

    @property
    def name(self) -> str:
        return "this machine"

    def run(self, command: Sequence[str], *, timeout_s: float = DEADLINE_S) -> CommandResult:
        return _run(list(command), timeout_s, where=self.name)


@dataclass(frozen=True, slots=True)
class SshHost:
    """Commands on a host that ssh reaches without a prompt: by key, agent or a shared connection."""

    host: str
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.host

    def run(self, command: Sequence[str], *, timeout_s: float = DEADLINE_S) -> CommandResult:
        line = [
            *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", *self.options),
            *("--", self.host, shlex.join(command)),  # the remote shell splits it again
        ]
        result = _run(line, timeout_s, where=self.host)
        if result.code == _SSH_FAILED:
            raise UserError(
                f"ssh to {self.host} failed: {result.error_text}",
                where=shlex.join(line[:-1]),
                next=f"`ssh {self.host} true` must work without a prompt: use a key, an agent or ControlMaster",
            )
        return result


def make_host(name: str | None, options: Sequence[str] = ()) -> Host:
    """The login node of that name, or this machine."""
    if name is None:
        return LocalHost()
    if name.startswith("-"):
        raise UserError(f"expected a host name, got '{name}'")
    return SshHost(name, tuple(options))


def _run(command: list[str], timeout_s: float, *, where: str) -> CommandResult:
    try:
        done = subprocess.run(  # noqa: S603 - a list of words; the remote shell gets them quoted
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no command `{command[0]}` on {where}",
            next="run this on a host that has it (a login node), or over ssh with --host",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"`{command[0]}` on {where} did not answer within {timeout_s:.0f} s",
            where=shlex.join(command)[:500],
            next="check that the scheduler is up: run the command by hand",
        ) from error
    return CommandResult(done.returncode, done.stdout, done.stderr)
