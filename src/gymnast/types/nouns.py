"""Counts with their nouns, as sentences have them."""

from __future__ import annotations


def count_noun(number: int, noun: str) -> str:
    """1 task, 2,000 tasks."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
