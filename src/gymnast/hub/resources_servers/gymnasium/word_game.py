"""A hidden word, guessed turn by turn: every guess is answered letter by letter. Needs no package."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import Field

from gymnast.hub.resources_servers.gymnasium.actions import action_text
from gymnast.kit import Attempt, Step, StepEnvironment, Task

_PLACED, _SOLVED = 0.25, 0.75
"""What all letters in their places are worth, and a solution at once."""


class WordGameTask(Task):
    word: str = Field(pattern=r"^[a-z]{2,20}$")
    turns: int = Field(default=6, ge=1)


@dataclass(slots=True)
class Game:
    """What is hidden, how many turns were used, and which places were ever right."""

    word: str
    turns: int
    used: int = 0
    placed: set[int] = field(default_factory=set)

    def guess(self, guess: str) -> tuple[str, float, bool]:
        """The answer, the reward of this turn, and whether the game is over."""
        self.used += 1
        new = {place for place, letter in enumerate(self.word) if guess[place : place + 1] == letter} - self.placed
        solved = guess == self.word
        over = solved or self.used >= self.turns
        if len(guess) != len(self.word) or not guess.isascii() or not guess.isalpha():
            said = f"A guess is a word of {len(self.word)} letters."
            return (f"{said} It was '{self.word}'." if over else said), 0.0, over
        self.placed |= new
        reward = _PLACED * len(new) / len(self.word)
        if solved:
            return "Solved.", reward + _SOLVED * (1 - (self.used - 1) / self.turns), True
        left = self.turns - self.used
        end = f"It was '{self.word}'." if over else f"{left} {'guess' if left == 1 else 'guesses'} left."
        return f"{marks(guess, self.word)}. {end}", reward, over


def marks(guess: str, word: str) -> str:
    """Each letter of a guess: `+` in its place, `~` elsewhere in the word, `-` not in it, counted as often as it is."""
    elsewhere = [letter for letter, guessed in zip(word, guess, strict=True) if letter != guessed]
    told: list[str] = []
    for letter, guessed in zip(word, guess, strict=True):
        mark = "+" if letter == guessed else "~" if guessed in elsewhere else "-"
        if mark == "~":
            elsewhere.remove(guessed)
        told.append(f"{guessed}{mark}")
    return " ".join(told)


class WordGame(StepEnvironment[WordGameTask, Game]):
    """Letters found for the first time earn a little, the solution the rest: the sooner, the more."""

    async def reset(self, task: WordGameTask) -> tuple[Game, str | None]:
        return Game(task.word, task.turns), None

    async def step(self, turn: Attempt[WordGameTask, Game]) -> Step:
        answer, reward, over = turn.session.guess((action_text(turn.last_text) or "").casefold()[:50])
        return Step(observation=answer, reward=reward, terminated=over)
