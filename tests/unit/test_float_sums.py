"""Sums that decide rewards: the same on every version of Python."""

from __future__ import annotations

import math

import pytest

from gymnast.builtin.float_sums import sum_floats


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
