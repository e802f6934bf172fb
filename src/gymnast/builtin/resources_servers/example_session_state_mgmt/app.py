"""Session state: a counter that tools change and the verifier compares."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from gymnast.kit import Attempt, Environment, Task, tool


class CounterTask(Task):
    initial_count: int
    expected_count: int


@dataclass(slots=True)
class Counter:
    count: int


class IncrementReply(BaseModel):
    success: bool


class CounterValue(BaseModel):
    count: int


class ExampleSessionState(Environment[CounterTask, Counter]):
    """Each rollout has its own counter."""

    async def open(self, task: CounterTask) -> Counter:
        return Counter(task.initial_count)

    @tool
    async def increment_counter(self, session: Counter, count: int) -> IncrementReply:
        """Increase the counter.

        Args:
            count: By how much.
        """
        session.count += count
        return IncrementReply(success=True)

    @tool
    async def get_counter_value(self, session: Counter) -> CounterValue:
        """Read the counter."""
        return CounterValue(count=session.count)

    async def verify(self, attempt: Attempt[CounterTask, Counter]) -> float:
        return float(attempt.session.count == attempt.task.expected_count)
