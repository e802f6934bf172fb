"""Pairs expected with actual tool calls, whatever their order, so that as many as possible have a partner."""

from __future__ import annotations

from collections.abc import Sequence


def match_calls(candidates: Sequence[Sequence[int]]) -> dict[int, int]:
    """A maximum matching, as actual call -> expected call; `candidates` are the partners of each expected call.

    A call may fit several expected ones, so that the first pairs found may have to give way: each expected call in
    turn looks for a path along which others change their partner.
    """
    partner: dict[int, int] = {}
    for expected in sorted(range(len(candidates)), key=lambda number: len(candidates[number])):
        _find_partner(expected, candidates, partner, set())
    return partner


def _find_partner(expected: int, candidates: Sequence[Sequence[int]], partner: dict[int, int], tried: set[int]) -> bool:
    for actual in candidates[expected]:
        if actual in tried:
            continue
        tried.add(actual)
        if actual not in partner or _find_partner(partner[actual], candidates, partner, tried):
            partner[actual] = expected
            return True
    return False
