"""Guess a hidden word turn by turn, with feedback on every letter. Needs no package."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import Field

from gymnast.kit import Attempt, Step, StepEnvironment, Task

from .actions import extract_action

_LETTERS_SHARE, _SOLUTION_SHARE = 0.25, 0.75
"""The reward for finding all positions, and for solving on the first turn."""


class WordGameTask(Task):
    word: str = Field(pattern=r"^[a-z]{2,20}$")
    turns: int = Field(default=6, ge=1)


@dataclass(slots=True)
class Game:
    """The hidden word, the turns used, and the positions found so far."""

    word: str
    turns: int
    used: int = 0
    placed: set[int] = field(default_factory=set)

    def guess(self, guess: str) -> tuple[str, float, bool]:
        """Guess a word; returns the reply, the reward of this turn, and whether the game is over."""
        self.used += 1
        new = {
            position for position, letter in enumerate(self.word) if guess[position : position + 1] == letter
        } - self.placed
        solved = guess == self.word
        over = solved or self.used >= self.turns
        if len(guess) != len(self.word) or not guess.isascii() or not guess.isalpha():
            text = f"A guess is a word of {len(self.word)} letters."
            return (f"{text} It was '{self.word}'." if over else text), 0.0, over
        self.placed |= new
        reward = _LETTERS_SHARE * len(new) / len(self.word)
        if solved:
            return "Solved.", reward + _SOLUTION_SHARE * (1 - (self.used - 1) / self.turns), True
        left = self.turns - self.used
        end = f"It was '{self.word}'." if over else f"{left} {'guess' if left == 1 else 'guesses'} left."
        return f"{marks(guess, self.word)}. {end}", reward, over


def marks(guess: str, word: str) -> str:
    """Mark each letter of a guess: `+` right position, `~` elsewhere in the word (counting repeats), `-` not in it."""
    elsewhere = [letter for letter, guessed in zip(word, guess, strict=True) if letter != guessed]
    marked: list[str] = []
    for letter, guessed in zip(word, guess, strict=True):
        mark = "+" if letter == guessed else "~" if guessed in elsewhere else "-"
        if mark == "~":
            elsewhere.remove(guessed)
        marked.append(f"{guessed}{mark}")
    return " ".join(marked)


class WordGame(StepEnvironment[WordGameTask, Game]):
    """Newly found letters earn a little, the solution the rest: the earlier, the more."""

    async def reset(self, task: WordGameTask) -> tuple[Game, str | None]:
        return Game(task.word, task.turns), None

    async def step(self, turn: Attempt[WordGameTask, Game]) -> Step:
        answer, reward, over = turn.session.guess((extract_action(turn.last_text) or "").casefold()[:50])
        return Step(observation=answer, reward=reward, terminated=over)
