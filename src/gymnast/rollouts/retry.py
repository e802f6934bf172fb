"""When an attempt is tried again, and after how long. Pure: the failure table decides, the engine waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.types.failure import kind_named

if TYPE_CHECKING:
    from gymnast.types.failure import FailureDetail

DEFAULT_ATTEMPTS: Final = 3
DEFAULT_ROLLOUT_TIMEOUT_S: Final = 7200.0
DEFAULT_GIVE_UP_AFTER_S: Final = 600.0
"""How long an attempt may take."""
_SMALLEST_BUDGET: Final = 100


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon."""

    max_attempts: int = DEFAULT_ATTEMPTS
    """Attempts at one rollout, the first included."""
    budget_share: float = 0.5
    """Retries of a whole run, as a share of its requested rollouts; a small run may always have a hundred."""
    first_delay_s: float = 1.0
    longest_delay_s: float = 60.0

    def budget(self, requested: int) -> int:
        """How many retries a run may spend."""
        return max(_SMALLEST_BUDGET, int(requested * self.budget_share))

    def is_final(self, detail: FailureDetail, attempts_made: int) -> bool:
        """Whether a rollout has failed for good."""
        return not kind_named(detail.kind).retryable or attempts_made >= self.max_attempts

    def delay_s(self, detail: FailureDetail, attempts_made: int, jitter: float) -> float:
        """How long to wait before the next attempt. `jitter` is in [0, 1)."""
        backoff = min(self.first_delay_s * 2.0 ** min(attempts_made - 1, 30), self.longest_delay_s) * (0.5 + jitter)
        asked = detail.retry_after_s or 0.0
        return max(backoff, min(asked, self.longest_delay_s))
