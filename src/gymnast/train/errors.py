"""Errors that stop a trainer: missing rollouts, and batches without a trainable token.

They survive pickling, so an actor or worker can raise them to its caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnast.errors import GymnastError, MissingRolloutsError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence


class FewerRolloutsError(MissingRolloutsError):
    """A batch has fewer scored rollouts than requested. Raised instead of returning a smaller batch."""

    def __init__(
        self, message: str, requested: int, scored: int, failed: dict[str, int], missing: Sequence[str]
    ) -> None:
        super().__init__(message, requested, scored, failed, requested - scored - sum(failed.values()))
        self.missing = tuple(missing)
        """The rollouts without a reward, as `task:rollout`."""

    def __reduce__(self) -> tuple[type[FewerRolloutsError], tuple[str, int, int, dict[str, int], tuple[str, ...]]]:  # type: ignore[override] # the base takes other arguments
        return (type(self), (str(self), self.requested, self.scored, self.failed, self.missing))


class RolloutsUnavailableError(FewerRolloutsError, ConnectionError):
    """Rollouts are missing because something that they need was down or too slow; the tasks are fine.

    It is a ConnectionError, which NeMo RL counts as an outage and not as bad data. Raised only to it: elsewhere, code
    that handles OSError would take it for an error of files.
    """


class NothingLeftError(UserError):
    """A stream resumes from a state in which everything was delivered, so its epoch would be empty."""


class NothingToTrainError(GymnastError):
    """All rollouts came back, but none has a trainable token: a training step would silently do nothing."""

    def __init__(self, message: str, masked: dict[str, int]) -> None:
        super().__init__(message)
        self.masked = masked
        """Number of samples by mask reason."""

    def __reduce__(self) -> tuple[type[NothingToTrainError], tuple[str, dict[str, int]]]:
        return (type(self), (str(self), self.masked))


class NoSignalError(GymnastError):
    """A stream dropped so many groups in a row that it would sample for ever without a trainable difference."""


class StepFailedError(GymnastError):
    """The rollouts of a training step failed. The message is that of the error that ended them."""
