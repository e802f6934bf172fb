"""A hidden number, a budget of guesses and six levels; the highest allow fewer guesses than binary search may need.

python -m gymnast.builtin.resources_servers.number_hunt.tasks --count 200 --seed 1 --level 1-5 > tasks.jsonl
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from gymnast.builtin.graded_tasks import Generator, Row, function_tool, user_row, write_tasks

TOOLS: Final = (
    function_tool("guess", "Guess the number; says whether it is higher or lower.", number=("integer", "The guess.")),
)
_LEVELS: Final = {1: (10, 5), 2: (20, 6), 3: (50, 6), 4: (100, 7), 5: (200, 7), 6: (1000, 9)}
"""The highest number and the budget of guesses, by level."""


@dataclass(slots=True)
class Hunt:
    """The state of one game."""

    hidden: int
    guesses_left: int
    guesses: int = 0
    found: bool = False

    def guess(self, number: int) -> str:
        """Guess a number; returns the reply to the player."""
        if self.found:
            return "correct, the game is over"
        if not self.guesses_left:
            return "no guesses left"
        self.guesses_left -= 1
        self.guesses += 1
        if number == self.hidden:
            self.found = True
            return "correct"
        if not self.guesses_left:
            return "wrong, no guesses left"
        return "higher" if self.hidden > number else "lower"


def text_of(highest: int, budget: int) -> str:
    """The prompt of a game."""
    return f"Find my number from 1 to {highest} with the tool guess. You have {budget} guesses."


def make_row(hidden: int, highest: int, budget: int, level: int) -> Row:
    """Make the dataset row of a game."""
    return user_row(text_of(highest, budget), TOOLS, hidden=hidden, highest=highest, budget=budget, level=level)


def make_game(rng: random.Random, level: int) -> tuple[int, int, int]:
    """Make a random game: the hidden number, the highest number and the budget."""
    highest, budget = _LEVELS[level]
    highest = rng.randint(highest * 4 // 5, highest)
    return rng.randint(1, highest), highest, budget


def _make(rng: random.Random, level: int) -> Row:
    return make_row(*make_game(rng, level), level)


GENERATOR: Final = Generator("number_hunt", len(_LEVELS), _make)

if __name__ == "__main__":
    write_tasks(GENERATOR)
