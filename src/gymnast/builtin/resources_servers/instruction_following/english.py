"""Sentences, word tokens and languages, as the packages that NeMo Gym uses find them.

The packages langdetect and nltk (with its English model `punkt_tab`) decide where they are installed. Without them our
own rules do, which agree on ordinary prose; `missing_packages` says so. Nothing is ever downloaded.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from . import counting, languages

_TOKEN: Final = re.compile(r"\w+(?:[-'’.,]\w+)*+|[^\w\s]")
_STOP: Final = "<stop>"
_DOT: Final = "<prd>"
_LETTER: Final = "([A-Za-z])"
_STARTERS: Final = (
    r"(Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|He\s|She\s|It\s|They\s|Their\s|Our\s|We\s|But\s|However\s|That\s|This\s|Wherever)"
)
_Replacement = str | Callable[[re.Match[str]], str]
# Periods that end nothing become _DOT, in this order: titles, websites, decimals, ellipses (which do end), initials.
_BEFORE_DEGREES: Final[tuple[tuple[str, _Replacement], ...]] = (
    ("(Mr|St|Mrs|Ms|Dr)[.]", rf"\1{_DOT}"),
    ("[.](com|net|org|io|gov|edu|me)", rf"{_DOT}\1"),
    ("([0-9])[.]([0-9])", rf"\1{_DOT}\2"),
    (r"\.{2,}", lambda match: _DOT * len(match[0]) + _STOP),
)
_AFTER_DEGREES: Final[tuple[tuple[str, _Replacement], ...]] = (
    (rf"\s{_LETTER}[.] ", rf" \1{_DOT} "),
    (rf"([A-Z][.][A-Z][.](?:[A-Z][.])?) {_STARTERS}", rf"\1{_STOP} \2"),
    (rf"{_LETTER}[.]{_LETTER}[.]{_LETTER}[.]", rf"\1{_DOT}\2{_DOT}\3{_DOT}"),
    (rf"{_LETTER}[.]{_LETTER}[.]", rf"\1{_DOT}\2{_DOT}"),
    (rf" (Inc|Ltd|Jr|Sr|Co)[.] {_STARTERS}", rf" \1{_STOP} \2"),
    (" (Inc|Ltd|Jr|Sr|Co)[.]", rf" \1{_DOT}"),
    (rf" {_LETTER}[.]", rf" \1{_DOT}"),
)
_QUOTES: Final = ((".”", "”."), ('."', '".'), ('!"', '"!'), ('?"', '"?'))


def split_sentences(text: str) -> list[str]:
    """Split at `.`, `?` and `!` by rules for English; a last part without a mark is a sentence."""
    text = f" {text}  ".replace("\n", " ")
    for pattern, replacement in _BEFORE_DEGREES:
        text = re.sub(pattern, replacement, text)
    text = text.replace("Ph.D.", f"Ph{_DOT}D{_DOT}")
    for pattern, replacement in _AFTER_DEGREES:
        text = re.sub(pattern, replacement, text)
    for inside, outside in _QUOTES:
        text = text.replace(inside, outside)
    for mark in ".?!":
        text = text.replace(mark, mark + _STOP)
    sentences = [part.strip() for part in text.replace(_DOT, ".").split(_STOP)]
    return sentences if sentences[-1] else sentences[:-1]


def count_sentences(text: str) -> int:
    """Count sentences with nltk's English model."""
    punkt = _punkt()
    return len(punkt.tokenize(text)) if punkt is not None else counting.sentences(text)


def tokenize_words(text: str) -> list[str]:
    """Words and punctuation marks, as nltk separates them."""
    if _punkt() is None:
        return _TOKEN.findall(text)
    tokens: list[str] = importlib.import_module("nltk.tokenize").word_tokenize(text)
    return tokens


def is_language(text: str, code: str) -> bool:
    """Whether a text is in a language; one without letters is in every language."""
    package = _langdetect()
    if package is None:
        return languages.detect(text, default=code) == code
    try:
        return bool(package.detect(text) == code)
    except package.LangDetectException:
        return True


def missing_packages() -> list[str]:
    """What would have to be installed for rewards that equal NeMo Gym's on every text."""
    missing = ["langdetect"] if _langdetect() is None else []
    return [*missing, "nltk with its data 'punkt_tab'"] if _punkt() is None else missing


@cache
def _langdetect() -> Any:
    try:
        package: Any = importlib.import_module("langdetect")
    except ImportError:
        return None
    package.DetectorFactory.seed = 0  # otherwise a short text is in another language each time
    return package


@cache
def _punkt() -> Any:
    try:
        return importlib.import_module("nltk.tokenize").PunktTokenizer("english")
    except (ImportError, AttributeError, LookupError):
        return None
