"""Scores recall strictly: whole words, and a copy of the context, which contains every expected string, is not recall.

Wrong candidates (numbers, UUIDs, variables, words of a list) count as missed strings. In tasks without such a form,
only the end of an answer is read. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gymnast.kit import input_items, message_text

_THINKING: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_UNCLOSED: Final = re.compile(r"<think(?:ing)?>.*", re.IGNORECASE | re.DOTALL)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_FORMS: Final = (
    _UUID,
    re.compile(r"\d{4,}"),  # a magic number; shorter ones are list numbers and counts
    re.compile(r"[A-Z]{5}"),  # a variable
)
_TOKEN: Final = re.compile(rf"{_UUID.pattern}|\w+", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_WORD_SUBSETS: Final = ("cwe", "fwe")
"""The context is a list of words, in which each occurs more than once."""
_ANY_SUBSETS: Final = ("qa_1", "qa_2")
_OPPOSITES: Final = {"yes": "no", "no": "yes"}
_INSTRUCTION_WORDS: Final = 30
"""At the start of a prompt, before the context; its last line is the question."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an answer may repeat, and the words of the context."""

    asked: frozenset[str]
    words: frozenset[str]


def score(text: str, expected: Sequence[str], subset: str, params: Any, max_words: int) -> float:
    """The reward of an answer: expected strings found, divided by those expected and the wrong candidates."""
    answer = final_text(text)
    if subset in _ANY_SUBSETS:
        answer = last_words(answer, max_words)
        return float(any(contains(answer, string) and not _contradicts(answer, string) for string in expected))
    forms = [form for form in _FORMS if all(form.fullmatch(string.strip()) for string in expected)]
    wrong: set[str] = set()
    if forms or subset in _WORD_SUBSETS:
        prompt = read_prompt(params)
        tokens = {token for token in _TOKEN.findall(answer) if any(form.fullmatch(token) for form in forms)}
        listed = set() if forms else {word for word in _WORD.findall(answer) if word.lower() in prompt.words}
        known = prompt.asked | {string.strip().lower() for string in expected}
        wrong = {token.lower() for token in tokens | listed} - known
    else:
        answer = last_words(answer, max_words)
    return sum(contains(answer, string) for string in expected) / (len(expected) + len(wrong))


def final_text(text: str) -> str:
    """The text without reasoning that leaked into it."""
    return _UNCLOSED.sub("", _THINKING.split(text)[-1]).strip()


def last_words(text: str, count: int) -> str:
    """The end of a text, by words."""
    words = text.rsplit(maxsplit=count)
    return text if len(words) <= count else " ".join(words[1:])


def contains(text: str, string: str) -> bool:
    """Whether a text contains a string as whole words, ignoring case."""
    return re.search(rf"(?<!\w){re.escape(string.strip())}(?!\w)", text, re.IGNORECASE) is not None


def read_prompt(params: Any) -> Prompt:
    """The instructions at both ends of the last user message, and the words that occur in it more than once."""
    texts = [message_text(item).strip() for item in input_items(params) if item.get("role") == "user"]
    text = texts[-1] if texts else ""
    ends = " ".join([*text.split(maxsplit=_INSTRUCTION_WORDS)[:_INSTRUCTION_WORDS], text.rpartition("\n")[2]])
    counts = Counter(word.lower() for word in _WORD.findall(text))
    return Prompt(
        frozenset(token.lower() for token in _TOKEN.findall(ends)),
        frozenset(word for word, count in counts.items() if count > 1),
    )


def _contradicts(answer: str, string: str) -> bool:
    opposite = _OPPOSITES.get(string.strip().lower())
    return opposite is not None and contains(answer, opposite)
