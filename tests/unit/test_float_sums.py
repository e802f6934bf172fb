"""Sums that decide rewards: the same on every version of Python."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from gymnast.builtin.float_sums import sum_floats, sum_numbers


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([], 0.0),
        ([0.1] * 10, 1.0),
        ([1.0, 1e100, 1.0, -1e100], 2.0),
        ([1e308, 1e308], math.inf),
        ([0.1, 0.2, 0.3], 0.6),
    ],
)
def test_rounding_errors_do_not_add_up(numbers: list[float], total: float) -> None:
    assert sum_floats(numbers) == total


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([1 / 6] * 6, 1.0),
        ([1, 2], 3),
        ([], 0),
        ([True, True], 2),
        ([0.5, Fraction(1, 2)], 1.0),
        ([1, 0.1, 0.2, 0.3], 1.6),
    ],
)
def test_sums_of_other_numbers_are_those_of_sum(numbers: list[Any], total: Any) -> None:
    assert sum_numbers(numbers) == total
    assert sum_numbers(iter(numbers), 1) == total + 1
    assert type(sum_numbers(numbers)) is type(sum(numbers))
