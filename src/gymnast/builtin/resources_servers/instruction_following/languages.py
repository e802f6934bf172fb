"""Detects the language of a text by its script, and within a script by frequent words and letters. Deterministic.

Knows the 30 languages of IFEval and some similar ones, so that Dutch is not mistaken for German.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from . import language_words as data

_WORD: Final = re.compile(r"[^\W\d_](?:[^\W\d_]++|[\u0300-\u036f\u0900-\u0dff\u0e00-\u0e7f\u200c])*")

# (first code point, script); a script lasts until the next entry.
_RANGES: Final[tuple[tuple[int, str], ...]] = (
    *((0, "latin"), (0x0370, "el"), (0x0400, "cyrillic"), (0x0530, "other"), (0x0590, "he"), (0x0600, "arabic")),
    *((0x0780, "other"), (0x0900, "devanagari"), (0x0980, "bn"), (0x0A00, "pa"), (0x0A80, "gu"), (0x0B00, "other")),
    *((0x0B80, "ta"), (0x0C00, "te"), (0x0C80, "kn"), (0x0D00, "ml"), (0x0D80, "other"), (0x0E00, "th")),
    *((0x0E80, "other"), (0x1100, "ko"), (0x1200, "other"), (0x1E00, "latin"), (0x1F00, "el"), (0x2000, "other")),
    *((0x3040, "ja"), (0x3100, "other"), (0x3130, "ko"), (0x3190, "other"), (0x3400, "han"), (0xA000, "other")),
    *((0xAC00, "ko"), (0xD7B0, "other"), (0xF900, "han"), (0xFB00, "other"), (0xFB50, "arabic"), (0xFE00, "other")),
    *((0xFE70, "arabic"), (0xFF00, "other"), (0xFF66, "ja"), (0xFFA0, "other"), (0x20000, "han")),
)
_STARTS: Final = [start for start, _ in _RANGES]
_SHARED: Final[Mapping[str, tuple[Mapping[str, frozenset[str]], Mapping[str, str]]]] = {
    script: ({name: frozenset(frequent.split()) for name, frequent in words.items()}, letters)
    for script, words, letters in (
        ("latin", data.LATIN, data.LATIN_LETTERS),
        ("cyrillic", data.CYRILLIC, data.CYRILLIC_LETTERS),
        ("arabic", data.ARABIC, data.ARABIC_LETTERS),
        ("devanagari", data.DEVANAGARI, {}),
    )
}
_LETTER_WEIGHT: Final = 0.5
KNOWN: Final = frozenset(
    {script for _, script in _RANGES if len(script) == 2}
    | {"zh"}
    | {name for words, _ in _SHARED.values() for name in words}
)


def known_language(value: Any) -> str:
    """A supported language code, such as `de` or `zh-cn`."""
    code = str(value).lower().replace("_", "-").partition("-")[0]
    if code not in KNOWN:
        raise ValueError(f"unsupported language {value!r}; supported: {', '.join(sorted(KNOWN))}")
    return code


def detect(text: str, *, default: str | None = None) -> str | None:
    """The language of most of a text, or `default` if nothing points to a language of its script."""
    words = Counter(_WORD.findall(text.lower()))
    scripts: Counter[str] = Counter()
    for word, count in words.items():
        script = _script(word[0])
        for part in word if script in {"han", "ja"} else (word,):  # these two are mixed and written without spaces
            scripts[_script(part[0])] += count * len(part)
    if not scripts:
        return default
    script = _main_script(scripts)
    if script not in _SHARED:
        return None if script == "other" else script
    languages, letters = _SHARED[script]
    return _best(words, languages, letters) or (default if script == "latin" else None)


def _script(letter: str) -> str:
    return _RANGES[bisect_right(_STARTS, ord(letter)) - 1][1]


def _main_script(scripts: Counter[str]) -> str:
    """The script of most letters. Japanese also uses Chinese characters, but never without kana."""
    han, kana = scripts.pop("han", 0), scripts["ja"]
    if kana * 10 >= han:
        scripts["ja"] += han
    else:
        scripts["zh"] += han
    return max(sorted(scripts), key=lambda script: scripts[script])


def _best(words: Counter[str], languages: Mapping[str, frozenset[str]], letters: Mapping[str, str]) -> str | None:
    seen: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word if not word.isascii() else "":
            seen[letter] += count
    scores = {
        name: sum(words[word] for word in frequent)
        + _LETTER_WEIGHT * sum(seen[letter] for letter in letters.get(name, ""))
        for name, frequent in languages.items()
    }
    first, second, *_ = sorted(scores.values(), reverse=True)
    return max(scores, key=lambda name: scores[name]) if first > second else None
