"""Find a hidden number with a tool that answers higher, lower or correct, within a budget of guesses."""

from __future__ import annotations

from gymnast.kit import Attempt, Environment, Task, Verdict, tool

from .tasks import Hunt


class HuntTask(Task):
    hidden: int
    budget: int
    level: int = 1


class HuntVerdict(Verdict):
    found: bool
    guesses: int
    level: int


class NumberHunt(Environment[HuntTask, Hunt]):
    """Each rollout plays its own game; the reward is 1.0 if the number is found."""

    async def open(self, task: HuntTask) -> Hunt:
        return Hunt(task.hidden, task.budget)

    @tool
    async def guess(self, session: Hunt, number: int) -> str:
        """Guess the number; says whether it is higher or lower.

        Args:
            number: The guess.
        """
        return session.guess(number)

    async def verify(self, attempt: Attempt[HuntTask, Hunt]) -> HuntVerdict:
        game = attempt.session
        return HuntVerdict(reward=float(game.found), found=game.found, guesses=game.guesses, level=attempt.task.level)
