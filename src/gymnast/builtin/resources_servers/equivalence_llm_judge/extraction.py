"""Finds the question and the answer in a conversation with regular expressions.

Runs in worker processes: patterns come from settings and rows, texts from models, and a match may take forever.
"""

from __future__ import annotations

import re

from gymnast.builtin.cpu_time import OutOfTimeError, cpu_time


def last_match(pattern: str, text: str, cpu_s: float) -> str | None:
    """The last match: its first group that is not blank, or the whole match, which may be blank. None without one."""
    last = None
    try:
        with cpu_time(cpu_s):
            for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
                last = match
    except OutOfTimeError:
        return None
    if last is None:
        return None
    captured = next((group for group in last.groups() if group and group.strip()), last[0])
    return captured.strip()
