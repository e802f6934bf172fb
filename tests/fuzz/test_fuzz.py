"""A few hundred fuzzed inputs per parser, always the same ones; `make fuzz` tries others."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.mutate import mutate
from tests.fuzz.run import attempt, corpus_of
from tests.fuzz.targets import TARGETS

INPUTS = 300


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_refuses_with_words_or_not_at_all(name: str) -> None:
    target, chance = TARGETS[name], random.Random(7)
    inputs = [*target.seeds, *corpus_of(name), *(mutate(chance.choice(target.seeds), chance) for _ in range(INPUTS))]
    for data in inputs:
        error = attempt(target, data)
        if error is not None:
            raise AssertionError(f"input: {data[:2000]!r}") from error
