"""How many groups may fail in a row while a trainer replaces them. Pure."""

from __future__ import annotations


class FailureBudget:
    """Counts failed groups; one more than `limit` in a row, without a delivered one between, is too many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_a_row = 0
        self.failed = 0
        """Failed groups so far."""
        self.error: BaseException | None = None
        """The failure that was one too many; the trainer raises it."""

    def take_success(self) -> None:
        self._in_a_row = 0

    def take_failure(self, error: BaseException) -> None:
        self.failed += 1
        self._in_a_row += 1
        if self._in_a_row > self._limit:
            self.error = self.error or error
