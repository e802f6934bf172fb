"""Sums, differences and products of six levels.

python -m gymnast.hub.resources_servers.arithmetic.tasks --count 200 --seed 1 --level 1-5 > tasks.jsonl
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gymnast.hub.graded_tasks import Generator, Row, user_row, write_tasks

Sign = Literal["+", "-", "*"]


@dataclass(frozen=True, slots=True)
class Operation:
    """Two terms and the sign between them."""

    left: Term
    sign: Sign
    right: Term


Term: TypeAlias = int | Operation


def value_of(term: Term) -> int:
    """What a term comes to."""
    if isinstance(term, int):
        return term
    left, right = value_of(term.left), value_of(term.right)
    return left + right if term.sign == "+" else left - right if term.sign == "-" else left * right


def text_of(term: Term, *, inside: bool = False) -> str:
    """A term as people write it: brackets only where they are needed."""
    if isinstance(term, int):
        return str(term)
    product = term.sign == "*"
    text = f"{text_of(term.left, inside=product)} {term.sign} {text_of(term.right, inside=product)}"
    return f"({text})" if inside and not product else text


def term_of_level(chance: random.Random, level: int) -> Term:
    """A term whose parts are never negative."""
    return chance.choice(_LEVELS[level])(chance)


def row_of(term: Term, level: int) -> Row:
    """The dataset row that asks for a term."""
    text = f"Work out {text_of(term)}. End with 'Answer: ' and the number."
    return user_row(text, expected_answer=value_of(term), level=level)


def _digits(chance: random.Random, count: int) -> int:
    return chance.randrange(10 ** (count - 1), 10**count)


def _sum(chance: random.Random, digits: int) -> Term:
    return Operation(_digits(chance, digits), "+", _digits(chance, digits))


def _difference(chance: random.Random, digits: int) -> Term:
    low, high = sorted((_digits(chance, digits), _digits(chance, digits)))
    return Operation(high, "-", low)


def _product(chance: random.Random, left: int, right: int) -> Term:
    return Operation(_digits(chance, left), "*", chance.randrange(2, 10) if right == 1 else _digits(chance, right))


def _sum_times(chance: random.Random, digits: int) -> Term:
    return Operation(_sum(chance, digits), "*", chance.randrange(2, 10))


def _plus_product(chance: random.Random, digits: int) -> Term:
    return Operation(_digits(chance, 2), "+", _product(chance, digits, 1))


def _two_products(chance: random.Random) -> Term:
    return Operation(_product(chance, 2, 1), "+", _product(chance, 2, 1))


_LEVELS: Final = {
    1: (lambda chance: _sum(chance, 1), lambda chance: _difference(chance, 1)),
    2: (
        lambda chance: _sum(chance, 2),
        lambda chance: _difference(chance, 2),
        lambda chance: _product(chance, 1, 1),
    ),
    3: (
        lambda chance: _sum(chance, 3),
        lambda chance: _difference(chance, 3),
        lambda chance: _product(chance, 2, 1),
    ),
    4: (
        lambda chance: _sum(chance, 4),
        lambda chance: _product(chance, 3, 1),
        lambda chance: _plus_product(chance, 1),
        lambda chance: _sum_times(chance, 1),
    ),
    5: (
        lambda chance: _product(chance, 2, 2),
        lambda chance: _plus_product(chance, 2),
        lambda chance: _sum_times(chance, 2),
    ),
    6: (lambda chance: _product(chance, 3, 2), _two_products, lambda chance: _sum_times(chance, 3)),
}

GENERATOR: Final = Generator(
    "arithmetic", len(_LEVELS), lambda chance, level: row_of(term_of_level(chance, level), level)
)

if __name__ == "__main__":
    write_tasks(GENERATOR)
