"""What stops a trainer: rollouts that are missing, and batches without a token to be trained on.

Both survive pickling, and so the way from an actor or a worker to whoever asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnast.errors import GymnastError, MissingRolloutsError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence


class FewerRolloutsError(MissingRolloutsError):
    """A batch has fewer scored rollouts than were requested. There is no batch then, not a smaller one."""

    def __init__(
        self, message: str, requested: int, scored: int, failed: dict[str, int], missing: Sequence[str]
    ) -> None:
        super().__init__(message, requested, scored, failed, requested - scored - sum(failed.values()))
        self.missing = tuple(missing)
        """The rollouts without a reward, as `task:rollout`."""

    def __reduce__(self) -> tuple[type[FewerRolloutsError], tuple[str, int, int, dict[str, int], tuple[str, ...]]]:  # type: ignore[override] # other arguments than the base
        return (type(self), (str(self), self.requested, self.scored, self.failed, self.missing))


class NothingLeftError(UserError):
    """A stream goes on from a state in which everything was delivered: its epoch would be empty."""


class NothingToTrainError(GymnastError):
    """All rollouts came back and none has a token to be trained on: a step on them would change nothing, silently."""

    def __init__(self, message: str, masked: dict[str, int]) -> None:
        super().__init__(message)
        self.masked = masked
        """Samples by reason."""

    def __reduce__(self) -> tuple[type[NothingToTrainError], tuple[str, dict[str, int]]]:
        return (type(self), (str(self), self.masked))
