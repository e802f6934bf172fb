"""Cohorts: the rollouts of one prompt that are compared with each other.

A cohort has as many slots as expected rollouts; a rollout that leaves frees its slot. Fixed responses take part without
a slot. Each comparison is made by the later of its two members, as soon as both have joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymnast.kit import JudgeError

from .aggregation import ComparisonStrategy, make_pairs
from .judging import JudgedPair, Prompt


@dataclass(eq=False, slots=True)
class Member:
    """A response in a cohort; a fixed one waits for nothing."""

    response: Any
    identity: Hashable | None = None
    """The rollout; a newer attempt at it replaces this one."""
    verdict: asyncio.Future[Any] | None = None

    @property
    def outcome(self) -> Any:
        return self.verdict.result() if self.verdict is not None else None

    def end(self, outcome: Any) -> None:
        """End the wait."""
        if self.verdict is not None and not self.verdict.done():
            self.verdict.set_result(outcome)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the outcome; False if there is none after the timeout."""
        return self.verdict is None or bool((await asyncio.wait([self.verdict], timeout=timeout_s))[0])


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two members in the order in which the judge sees them, and the number of the vote."""

    first: Member
    second: Member
    vote: int


@dataclass(eq=False)
class Cohort:
    """The members of one prompt, and the outcomes of their comparisons."""

    prompt: Prompt
    size: int
    fixed: Sequence[Member]
    strategy: ComparisonStrategy
    votes: int
    slots: list[Member | None] = field(init=False)
    outcomes: dict[Comparison, JudgedPair | JudgeError] = field(default_factory=dict)
    is_over: bool = False
    """The waits were ended: it takes no more members."""

    def __post_init__(self) -> None:
        self.slots = [None] * self.size

    @property
    def present(self) -> list[Member]:
        """The rollouts that have joined, in the order of their slots."""
        return [member for member in self.slots if member is not None]

    @property
    def members(self) -> list[Member]:
        """All rollouts and fixed responses, in the order of their numbers."""
        return [*self.present, *self.fixed]

    @property
    def is_full(self) -> bool:
        return None not in self.slots

    @property
    def is_compared(self) -> bool:
        """Whether everything that is expected was compared."""
        return self.is_full and all(comparison in self.outcomes for comparison in self.plan())

    def join(self, member: Member) -> Member | None:
        """Take a slot: that of an older attempt, which is returned, or the first free one."""
        known = [other for other in self.present if other.identity is not None]
        older = next((other for other in known if other.identity == member.identity), None)
        self.slots[self.slots.index(older)] = member
        return older

    def leave(self, member: Member) -> None:
        """Free the slot, if the member still has it."""
        if member in self.slots:
            self.slots[self.slots.index(member)] = None

    def plan(self) -> Iterator[Comparison]:
        """The comparisons of all members that have joined."""
        return _plan([*self.slots, *self.fixed], self)

    def comparisons_with(self, member: Member) -> list[Comparison]:
        """The comparisons of one member."""
        return [comparison for comparison in self.plan() if member in {comparison.first, comparison.second}]

    def results(self) -> dict[tuple[int, int, int], JudgedPair | JudgeError]:
        """The outcomes by the numbers of both members and of the vote, in the order of the plan."""
        number = {id(member): at for at, member in enumerate(self.members)}
        return {
            (number[id(planned.first)], number[id(planned.second)], planned.vote): self.outcomes[planned]
            for planned in self.plan()
        }

    def drop_empty_slots(self) -> None:
        """Expect no more members."""
        self.slots = list(self.present)
        self.size = len(self.slots)


def _plan(members: Sequence[Member | None], cohort: Cohort) -> Iterator[Comparison]:
    for vote in range(cohort.votes):
        for first, second in make_pairs(cohort.strategy, len(members)):
            one, two = members[first], members[second]
            if one is not None and two is not None and not (one in cohort.fixed and two in cohort.fixed):
                yield Comparison(one, two, vote)
