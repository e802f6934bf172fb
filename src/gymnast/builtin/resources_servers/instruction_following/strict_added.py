"""The instructions that Open-Instruct adds to those of IFEval: each a pure function of text and arguments.

Words are compared as text, never as regular expressions, and punctuation marks are not words.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from .arguments import holds
from .english import split_sentences

_WORD: Final = re.compile(r"\w+(?:[-'’.]\w+)*+")
_MIN_PALINDROME: Final = 3


def repeat_phrase(answer: str, phrase: str, small_n: int) -> bool:
    """The phrase occurs this often, each time with exactly one word changed between its first and last."""
    words = phrase.split()
    copies = re.findall(rf"{re.escape(words[0])} .*? {re.escape(words[-1])}", answer)
    changes = [_count_changes(copy.split(), words) for copy in copies]
    return len(copies) == small_n and all(count == 1 for count in changes)


def _count_changes(copy: list[str], words: list[str]) -> int:
    if len(copy) != len(words):
        return -1
    return sum(one != other for one, other in zip(copy, words, strict=True))


def copy_prompt(answer: str, prompt_to_repeat: str) -> bool:
    """The answer is the request and nothing else."""
    return answer.strip().lower() == prompt_to_repeat.strip().lower()


def copy_span(answer: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The answer is the part of the request between two positions."""
    return copy_prompt(answer, prompt_to_repeat[n_start:n_end])


def copying_multiple(answer: str, prompt_to_repeat: str, N: int) -> bool:  # noqa: N803 - the row's name
    """The answer is the request, this often, divided by six stars."""
    copies = answer.split("******")
    return len(copies) == N and all(copy_prompt(copy, prompt_to_repeat) for copy in copies)


def sentence_hyphens(answer: str) -> bool:
    """Hyphens without spaces connect the sentences."""
    return answer.split("-") == split_sentences(answer.replace("-", " "))


def no_adjacent_consecutive(answer: str) -> bool:
    """No two words in a row start with letters that follow each other in the alphabet."""
    letters = [word[0].lower()[0] for word in answer.split()]
    return all(ord(second) - ord(first) != 1 for first, second in pairwise(letters))


def square_brackets(answer: str) -> bool:
    """Every word is in square brackets."""
    return all(word.startswith("[") and word.endswith("]") for word in answer.split())


def bigram_wrapping(answer: str) -> bool:
    """Every two words are in double angular brackets; so is a last one without a partner."""
    words = answer.split()
    pairs = [words[start : start + 2] for start in range(0, len(words), 2)]
    return all(pair[0].startswith("<<") and pair[-1].endswith(">>") for pair in pairs)


def word_once(answer: str, keyword: str) -> bool:
    """The keyword occurs exactly once."""
    return _count(answer, keyword) == 1


def count_increment_word(answer: str, keyword1: str, keyword2: str) -> bool:
    """The first keyword occurs once, the second twice."""
    return _count(answer, keyword1) == 1 and _count(answer, keyword2) == 2


def _count(answer: str, keyword: str) -> int:
    return answer.lower().count(keyword.strip().lower())


def exclude_word(answer: str, keyword: str) -> bool:
    """The keyword does not occur as a word, at the start, the end or next to punctuation either."""
    return re.search(rf"(?<!\w){re.escape(keyword.strip())}(?!\w)", answer, re.IGNORECASE) is None


def starred_pair(answer: str) -> bool:
    """The answer has two paragraphs, divided by `***`."""
    return _has_two_parts(answer.split("***"))


def blank_line_pair(answer: str) -> bool:
    """The answer has two paragraphs, divided by a blank line."""
    return _has_two_parts(answer.split("\n\n"))


def _has_two_parts(parts: list[str]) -> bool:
    texts = [part.strip() for part in parts]
    return all(texts[1:-1]) and sum(map(bool, texts)) == 2


def first_word_sent(answer: str, first_word: str) -> bool:
    """Every sentence starts with the word."""
    return all(_words(sentence)[:1] == [first_word.strip().lower()] for sentence in split_sentences(answer))


def first_word_answer(answer: str, first_word: str) -> bool:
    """The answer starts with the word."""
    return _words(answer)[:1] == [first_word.strip().lower()]


def last_word_sent(answer: str, last_word: str) -> bool:
    """Every sentence ends with the word."""
    return all(_words(sentence)[-1:] == [last_word.strip().lower()] for sentence in split_sentences(answer))


def last_word_answer(answer: str, last_word: str) -> bool:
    """The answer ends with the word."""
    return _words(answer)[-1:] == [last_word.strip().lower()]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def no_dot(answer: str) -> bool:
    """The answer has no dot."""
    return "." not in answer


def no_exclamation(answer: str) -> bool:
    """The answer has no exclamation mark."""
    return "!" not in answer


def lowercase_counting(answer: str, N: int) -> bool:  # noqa: N803 - the row's name
    """At most this many words are in small letters."""
    return len(re.findall(r"\b[a-z]+\b", answer)) <= N


def letter_counting(answer: str, N: int, relation: str) -> bool:  # noqa: N803 - the row's name
    """The answer has this many letters."""
    return holds(len(re.findall(r"[a-zA-Z]", answer)), relation, N)


def counting_composition(answer: str, n_sent: int, n_words: int) -> bool:
    """Three paragraphs, divided by `***`, each with this many sentences of this many words."""
    paragraphs = [part.strip() for part in answer.strip().strip("*").split("***")]
    lengths = [[len(_words(sentence)) for sentence in split_sentences(part)] for part in paragraphs]
    return lengths == [[n_words] * n_sent] * 3


def count_unique(answer: str) -> bool:
    """No word occurs twice, in either case."""
    words = _words(answer)
    return len(words) == len(set(words))


def palindrome(answer: str) -> bool:
    """A word of three letters or more reads the same backwards."""
    return any(word == word[::-1] for word in _words(answer) if len(word) >= _MIN_PALINDROME and word.isalpha())


def keyword_position(answer: str, keyword: str, n: int, m: int) -> bool:
    """The keyword is the m-th word of the n-th sentence."""
    sentence = split_sentences(answer)[n - 1 : n]
    return bool(sentence) and _words(sentence[0])[m - 1 : m] == [keyword.strip().lower()]


def start_end(answer: str) -> bool:
    """The answer starts and ends with the same word, with nothing after it."""
    words = _words(answer)
    return len(words) > 1 and words[0] == words[-1] and answer.rstrip().lower().endswith(words[-1])
