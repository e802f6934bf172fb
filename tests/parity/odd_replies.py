"""Replies that only one environment has a reason to look at closely: its tags, labels, formats and their odd spellings.

odd_replies.json has them, as templates: `%0` is an answer that the row may expect, `%1` another text, and the marks in
`parts` are pieces of their own. `boxes` and `verdicts` stand for the lists of that name.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Final

_DATA: Final = json.loads(Path(__file__).with_suffix(".json").read_text())


def _read(kind: str) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(one for text in texts for one in _DATA.get(text, [text])) for name, texts in _DATA[kind].items()
    }


TEMPLATES: Final = _read("templates")
"""By environment."""
JUDGE_REPLIES: Final = _read("judges")
"""What judges say, by environment."""
_PARTS: Final = _read("parts")


def make_reply(environment: str, gold: str, other: str, chance: random.Random) -> str | None:
    """A reply from one of the environment's templates; None if it has none."""
    templates = TEMPLATES.get(environment)
    return _fill(chance.choice(templates), chance).replace("%0", gold).replace("%1", other) if templates else None


def make_edit(text: str, files: dict[str, str], chance: random.Random) -> str:
    """A reply with its edits of some lines of one of the files."""
    path = chance.choice(list(files))
    lines = files[path].splitlines() or [""]
    start = chance.randrange(len(lines))
    search = "\n".join(lines[start : start + chance.randint(1, 4)])
    replacement = chance.choice(
        ("pass", f"{search}\n", search.replace("(", "( "), "", f"    {search}", f"{search}\n# é")
    )
    return text.replace("%p", path).replace("%s", search).replace("%r", replacement)


def make_judge_reply(environment: str, chance: random.Random) -> str | None:
    """What a judge of the environment may say; None if it asks none."""
    templates = JUDGE_REPLIES.get(environment)
    return _fill(chance.choice(templates), chance) if templates else None


def _fill(text: str, chance: random.Random) -> str:
    """Each mark of a part with another piece."""
    for mark, pieces in _PARTS.items():
        while mark in text:
            text = text.replace(mark, chance.choice(pieces), 1)
    return text
