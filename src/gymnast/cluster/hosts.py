"""Where a scheduler's commands run: on this machine, or on a login node over the user's own ssh. Deadlines always."""

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
"""What ssh itself exits with when it could not run the command."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Why it failed, in its own words."""
        return (self.err.strip() or self.out.strip() or f"exit code {self.code}")[-2000:]


class Host(Protocol):
    """Runs commands somewhere."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    def run(self, command: Sequence[str], *, timeout_s: float = DEADLINE_S) -> Answer:
        """Run it to its end. Raises UserError if that cannot be done, or not in time."""
        ...


@dataclass(frozen=True, slots=True)
class ThisHost:
    """Commands on this machine."""

    @property
    def name(self) -> str:
        return "this machine"

    def run(self, command: Sequence[str], *, timeout_s: float = DEADLINE_S) -> Answer:
        return _run(list(command), timeout_s, where=self.name)


@dataclass(frozen=True, slots=True)
class SshHost:
    """Commands on a host that ssh can reach without asking anything: by key, agent or a shared connection."""

    host: str
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.host

    def run(self, command: Sequence[str], *, timeout_s: float = DEADLINE_S) -> Answer:
        line = [
            *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", *self.options),
            *("--", self.host, shlex.join(command)),  # the far side's shell splits it again
        ]
        said = _run(line, timeout_s, where=self.host)
        if said.code == _SSH_FAILED:
            raise UserError(
                f"ssh to {self.host} failed: {said.words}",
                where=shlex.join(line[:-1]),
                next=f"`ssh {self.host} true` must work without a question: use a key, an agent or ControlMaster",
            )
        return said


def host_named(name: str | None, options: Sequence[str] = ()) -> Host:
    """The login node of that name, or this machine."""
    if name is None:
        return ThisHost()
    if name.startswith("-"):
        raise UserError(f"'{name}' is no host name")
    return SshHost(name, tuple(options))


def _run(command: list[str], timeout_s: float, *, where: str) -> Answer:
    try:
        done = subprocess.run(  # noqa: S603 - words, never a shell's text; the far side gets them quoted
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no command `{command[0]}` on {where}",
            next="run this where it is (a login node), or over ssh with --host",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"`{command[0]}` on {where} did not answer within {timeout_s:.0f} s",
            where=shlex.join(command)[:500],
            next="is the scheduler up? try it by hand",
        ) from error
    return Answer(done.returncode, done.stdout, done.stderr)
