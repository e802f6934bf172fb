"""Whether an attempt is retried, and after how long. Pure: the failure table decides, the engine waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.types.failure import kind_named

if TYPE_CHECKING:
    from gymnast.types.failure import FailureDetail

DEFAULT_ATTEMPTS: Final = 3
DEFAULT_ROLLOUT_TIMEOUT_S: Final = 7200.0
"""How long an attempt may take."""
DEFAULT_GIVE_UP_AFTER_S: Final = 600.0
_MIN_BUDGET: Final = 100


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a rollout is retried, and how soon."""

    max_attempts: int = DEFAULT_ATTEMPTS
    """Attempts at one rollout, including the first."""
    budget_share: float = 0.5
    """Retries of a whole run, as a share of its requested rollouts; every run may make at least a hundred."""
    first_delay_s: float = 1.0
    max_delay_s: float = 60.0

    def budget(self, requested: int) -> int:
        """How many retries a run may make."""
        return max(_MIN_BUDGET, int(requested * self.budget_share))

    def is_final(self, detail: FailureDetail, attempts_made: int) -> bool:
        """Whether the rollout has failed permanently."""
        return not kind_named(detail.kind).retryable or attempts_made >= self.max_attempts

    def delay_s(self, detail: FailureDetail, attempts_made: int, jitter: float) -> float:
        """How long to wait before the next attempt. `jitter` is in [0, 1)."""
        backoff = min(self.first_delay_s * 2.0 ** min(attempts_made - 1, 30), self.max_delay_s) * (0.5 + jitter)
        return max(backoff, min(detail.retry_after_s or 0.0, self.max_delay_s))
