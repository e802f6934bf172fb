"""Sums, differences and products in six levels.

python -m gymnast.builtin.resources_servers.arithmetic.tasks --count 200 --seed 1 --level 1-5 > tasks.jsonl
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gymnast.builtin.graded_tasks import Generator, Row, user_row, write_tasks

Sign = Literal["+", "-", "*"]


@dataclass(frozen=True, slots=True)
class Operation:
    """Two terms and the sign between them."""

    left: Term
    sign: Sign
    right: Term


Term: TypeAlias = int | Operation


def value_of(term: Term) -> int:
    if isinstance(term, int):
        return term
    left, right = value_of(term.left), value_of(term.right)
    return left + right if term.sign == "+" else left - right if term.sign == "-" else left * right


def text_of(term: Term, *, inside: bool = False) -> str:
    """A term as text, with brackets only where needed."""
    if isinstance(term, int):
        return str(term)
    product = term.sign == "*"
    text = f"{text_of(term.left, inside=product)} {term.sign} {text_of(term.right, inside=product)}"
    return f"({text})" if inside and not product else text


def make_term(rng: random.Random, level: int) -> Term:
    """Make a random term whose parts are never negative."""
    return rng.choice(_LEVELS[level])(rng)


def make_row(term: Term, level: int) -> Row:
    """Make the dataset row of a term."""
    text = f"Work out {text_of(term)}. End with 'Answer: ' and the number."
    return user_row(text, expected_answer=value_of(term), level=level)


def _digits(rng: random.Random, count: int) -> int:
    return rng.randrange(10 ** (count - 1), 10**count)


def _sum(rng: random.Random, digits: int) -> Term:
    return Operation(_digits(rng, digits), "+", _digits(rng, digits))


def _difference(rng: random.Random, digits: int) -> Term:
    low, high = sorted((_digits(rng, digits), _digits(rng, digits)))
    return Operation(high, "-", low)


def _product(rng: random.Random, left: int, right: int) -> Term:
    return Operation(_digits(rng, left), "*", rng.randrange(2, 10) if right == 1 else _digits(rng, right))


def _sum_times(rng: random.Random, digits: int) -> Term:
    return Operation(_sum(rng, digits), "*", rng.randrange(2, 10))


def _plus_product(rng: random.Random, digits: int) -> Term:
    return Operation(_digits(rng, 2), "+", _product(rng, digits, 1))


def _two_products(rng: random.Random) -> Term:
    return Operation(_product(rng, 2, 1), "+", _product(rng, 2, 1))


_LEVELS: Final = {
    1: (lambda rng: _sum(rng, 1), lambda rng: _difference(rng, 1)),
    2: (
        lambda rng: _sum(rng, 2),
        lambda rng: _difference(rng, 2),
        lambda rng: _product(rng, 1, 1),
    ),
    3: (
        lambda rng: _sum(rng, 3),
        lambda rng: _difference(rng, 3),
        lambda rng: _product(rng, 2, 1),
    ),
    4: (
        lambda rng: _sum(rng, 4),
        lambda rng: _product(rng, 3, 1),
        lambda rng: _plus_product(rng, 1),
        lambda rng: _sum_times(rng, 1),
    ),
    5: (
        lambda rng: _product(rng, 2, 2),
        lambda rng: _plus_product(rng, 2),
        lambda rng: _sum_times(rng, 2),
    ),
    6: (lambda rng: _product(rng, 3, 2), _two_products, lambda rng: _sum_times(rng, 3)),
}

GENERATOR: Final = Generator("arithmetic", len(_LEVELS), lambda rng, level: make_row(make_term(rng, level), level))

if __name__ == "__main__":
    write_tasks(GENERATOR)
