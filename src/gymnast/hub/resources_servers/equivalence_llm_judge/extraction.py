"""The question and the answer in a conversation's texts, found by patterns.

Runs in worker processes: patterns come from settings and rows, texts from models, and together they may take for ever.
"""

from __future__ import annotations

import re

from gymnast.hub.cpu_time import OutOfTimeError, cpu_time


def last_match(pattern: str, text: str, cpu_s: float) -> str | None:
    """What the last match captures: its first group that is not blank, else all of it. None where there is no match."""
    found = None
    try:
        with cpu_time(cpu_s):
            for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
                found = match
    except OutOfTimeError:
        return None
    if found is None:
        return None
    captured = next((group for group in found.groups() if group and group.strip()), found[0])
    return captured.strip() or None
