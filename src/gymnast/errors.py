"""The error tree. Every message says what happened, where, and what to do next.

    GymnastError
    ├── UserError            the user can fix it: message only, exit code 2
    │   ├── ConfigError      the configuration is wrong; carries all problems
    │   ├── DataError        an input file or row is wrong
    │   ├── NotFoundError    a name, path or running server does not exist (with suggestions)
    │   ├── PortTakenError   another process listens on the port
    │   └── StartError       a server or an endpoint did not become ready
    ├── CallError            an attempt failed: becomes a failure record, exit code 1 beyond the allowed share
    ├── JudgeError           a judge gave no verdict: also a failure record, which can be re-verified
    └── MissingRolloutsError fewer rollouts were scored than requested (raised by the library)

Any other exception is a bug: the command line prints its traceback and exits 3.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.types.failure import FailureDetail


class GymnastError(Exception):
    """Base class of all errors that Gymnast raises deliberately."""


class UserError(GymnastError):
    """Something the user can fix: `what` happened, `where`, and the `next` step."""

    exit_code = 2

    def __init__(self, what: str, *, where: str | None = None, next: str | None = None) -> None:  # noqa: A002 - as messages show it
        super().__init__(what)
        self.what = what
        self.where = where
        self.next = next

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.next:
            lines.append(f"  next:  {self.next}")
        return "\n".join(lines)


class DataError(UserError):
    """An input file or row that cannot be used."""


class NotFoundError(UserError):
    """A name, path or running server that does not exist."""


class PortTakenError(UserError):
    """Another process listens on the requested port."""


class StartError(UserError):
    """A server, child process or endpoint did not become ready in time."""


@dataclass(frozen=True, slots=True)
class Problem:
    what: str
    where: str | None = None
    next: str | None = None

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.next})" if self.next else text


class ConfigError(UserError):
    """A configuration that cannot be used. Carries all problems, not only the first."""

    def __init__(self, problems: Sequence[Problem], *, next: str | None = None) -> None:  # noqa: A002 - as in UserError
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            only = self.problems[0]
            super().__init__(only.what, where=only.where, next=only.next or next)
        else:
            listed = "\n".join(f"  - {problem}" for problem in self.problems)
            super().__init__(f"the configuration has {len(self.problems)} problems\n{listed}", next=next)


class CallError(GymnastError):
    """A call that an attempt depends on failed; `detail` goes into the failure record."""

    def __init__(self, detail: FailureDetail) -> None:
        super().__init__(detail.message)
        self.detail = detail

    def __reduce__(self) -> tuple[type[CallError], tuple[FailureDetail]]:
        return (type(self), (self.detail,))  # to survive pickling between processes


UNPARSEABLE: Final = "judge_unparseable"


class JudgeError(GymnastError):
    """A judge could not be called, or gave no verdict. The attempt has no score, rather than a bad one."""

    def __init__(self, message: str, *, cause: str = "JudgeError") -> None:
        super().__init__(message)
        self.cause = cause
        """A short name of what went wrong, e.g. a failure kind."""

    @property
    def is_unparseable(self) -> bool:
        """The judge responded, but without a verdict."""
        return self.cause == UNPARSEABLE


class MissingRolloutsError(GymnastError):
    """Fewer rollouts were scored than requested. To use the others anyway, catch it or raise `max_failed`."""

    def __init__(self, message: str, requested: int, scored: int, failed: dict[str, int], owed: int) -> None:
        super().__init__(message)
        self.requested = requested
        self.scored = scored
        self.failed = failed
        """Permanently failed rollouts, by kind."""
        self.owed = owed

    def __reduce__(self) -> tuple[type[MissingRolloutsError], tuple[str, int, int, dict[str, int], int]]:
        return (type(self), (str(self), self.requested, self.scored, self.failed, self.owed))


def suggest(name: str, known: Iterable[str], *, limit: int = 3) -> str | None:
    """A did-you-mean text for a misspelled name, else the list of valid ones, or None if there are none."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=limit, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(f"'{match}'" for match in close) + "?"
    if names:
        shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
        return f"available: {shown}"
    return None
