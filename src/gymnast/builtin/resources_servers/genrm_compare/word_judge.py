"""A scripted judge for checks and trials without a reward model: a point per word of the question, up to five."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_WORD: Final = re.compile(r"\w+")
_MAX_READ: Final = 200
"""Characters of a response that are read."""


def answer(call: Any) -> str:
    """The scores of the two responses in the request's metadata."""
    question, metadata = _words(call.user_text), call.params["metadata"]
    scores = [min(5, max(1, len(question & _words(metadata[name])))) for name in ("response_1", "response_2")]
    ranking = 3.5 - (scores[0] - scores[1]) / 2
    return json.dumps({"score_1": scores[0], "score_2": scores[1], "ranking": min(max(ranking, 1), 6)})


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text[:_MAX_READ].lower()))
