"""The instructions that Open-Instruct adds to those of IFEval, checked as NeMo Gym checks them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from . import english
from .nemo_gym_ifeval import Draw, count_keyword, count_paragraphs, holds


def repeat_phrase(draw: Draw, answer: str, phrase: Any = None, small_n: Any = None) -> bool:
    """The phrase occurs this often, each time with at most one word changed, and the last time with one."""
    words = phrase.split() if phrase else []
    copies = re.findall(rf"{words[0]} .*? {words[-1]}", answer)
    if len(copies) != (small_n or draw.randint(2, 3)):
        return False
    changes = [_count_changes(copy.split(), words) for copy in copies]
    return all(0 <= count <= 1 for count in changes) and changes[-1] == 1


def _count_changes(copy: list[str], words: list[str]) -> int:
    if len(copy) != len(words):
        return -1
    return sum(one != other for one, other in zip(copy, words, strict=True))


def copy_prompt(_: Draw, answer: str, prompt_to_repeat: Any = None) -> bool:
    return bool(prompt_to_repeat) and answer.strip().lower() == prompt_to_repeat.strip().lower()


def copy_span_idx(
    draw: Draw, answer: str, prompt_to_repeat: Any = None, n_start: Any = None, n_end: Any = None
) -> bool:
    if not prompt_to_repeat:
        return False
    start = n_start or draw.randint(0, len(prompt_to_repeat) - 2)
    end = n_end or draw.randint(start + 1, len(prompt_to_repeat) - 1)
    return bool(answer.strip().lower() == prompt_to_repeat[start:end].strip().lower())


def copying_multiple(draw: Draw, answer: str, prompt_to_repeat: Any = None, N: Any = None) -> bool:  # noqa: N803
    copies = answer.split("******")
    return len(copies) == (N or draw.randint(2, 3)) and all(
        copy_prompt(draw, copy, prompt_to_repeat) for copy in copies
    )


def sentence_hyphens(_: Draw, answer: str) -> bool:
    sentences = english.split_sentences(answer.replace("-", " "))
    return all(part == part.strip() == sentence for part, sentence in zip(answer.split("-"), sentences, strict=False))


def no_adjacent_consecutive(_: Draw, answer: str) -> bool:
    letters = [word[0].lower() for word in answer.split()]
    if len(letters) > 1 and any(len(letter) != 1 for letter in letters):
        return False
    return all(ord(second) - ord(first) != 1 for first, second in pairwise(letters))


def square_brackets(_: Draw, answer: str) -> bool:
    return all(word.startswith("[") and word.endswith("]") for word in answer.split())


def word_once(_: Draw, answer: str, *, keyword: Any = None) -> bool:
    return count_keyword(answer, keyword) == 1


def exclude_word_harder(draw: Draw, answer: str, keyword: Any = None, instruction: Any = None) -> bool:
    word = keyword.strip() if keyword else draw.choice(instruction.split())
    return f" {word} " not in answer


def paragraphs(_: Draw, answer: str) -> bool:
    return count_paragraphs(answer, r"\s?\*\*\*\s?") == 2


def paragraphs2(_: Draw, answer: str) -> bool:
    return count_paragraphs(answer, r"\n\n") == 2


def first_word_sent(_: Draw, answer: str, first_word: Any = None) -> bool:
    sentences = english.split_sentences(answer)
    wanted = first_word.strip().lower() if first_word else None
    return all(sentence and sentence.split()[0].lower() == wanted for sentence in sentences)


def first_word_answer(_: Draw, answer: str, first_word: Any = None) -> bool:
    wanted = first_word.strip().lower() if first_word else None
    return [word.lower() for word in answer.split()[:1]] == [wanted]


def last_word_sent(_: Draw, answer: str, last_word: Any = None) -> bool:
    given = last_word if isinstance(last_word, str) or not last_word else last_word[0]
    wanted = given.strip().lower() if last_word else None
    return all(sentence and _last_word(sentence) == wanted for sentence in english.split_sentences(answer))


def last_word_answer(_: Draw, answer: str, last_word: Any = None) -> bool:
    return bool(last_word) and _last_word(answer) == last_word.strip().lower()


def _last_word(text: str) -> str:
    return re.sub(r"[^\w\s]", "", text.rsplit(maxsplit=1)[-1]).lower()


def bigram_wrapping(_: Draw, answer: str) -> bool:
    words = answer.split()
    pairs = zip(words[::2], words[1::2], strict=False)
    return all(first.startswith("<<") and second.endswith(">>") for first, second in pairs)


def punctuation_dot(_: Draw, answer: str) -> bool:
    return "." not in answer


def punctuation_exclamation(_: Draw, answer: str) -> bool:
    return "!" not in answer


def lowercase_counting(draw: Draw, answer: str, N: Any = None) -> bool:  # noqa: N803
    return len(re.findall(r"\b[a-z]+\b", answer)) <= (N or draw.randint(2, 3))


def letter_counting(draw: Draw, answer: str, N: Any = None, relation: Any = None) -> bool:  # noqa: N803
    limit = N or draw.randint(2, 3)
    return holds(draw, len(re.findall(r"[a-zA-Z]", answer)), relation or None, limit)


def counting_composition(draw: Draw, answer: str, n_sent: Any = None, n_words: Any = None) -> bool:
    sentence_count, word_count = n_sent or draw.randint(2, 3), n_words or draw.randint(2, 3)
    for paragraph in re.split(r"\s?\*\*\*\s?", answer):
        sentences = english.split_sentences(paragraph)
        if len(sentences) != sentence_count:
            return False
        if any(len(english.tokenize_words(sentence)) != word_count for sentence in sentences):
            return False
    return count_paragraphs(answer, r"\s?\*\*\*\s?") == 3


def count_unique(_: Draw, answer: str) -> bool:
    words = english.tokenize_words(answer)
    return len(words) == len(set(words))


def count_increment_word(_: Draw, answer: str, keyword1: Any = None, keyword2: Any = None) -> bool:
    return count_keyword(answer, keyword1) == 1 and count_keyword(answer, keyword2) == 2


def palindrome(_: Draw, answer: str) -> bool:
    return any(word == word[::-1] for word in answer.split())


def keyword_specific_position(draw: Draw, answer: str, keyword: Any = None, n: Any = None, m: Any = None) -> bool:
    given = keyword if isinstance(keyword, str) or not keyword else keyword[0]
    wanted = given.strip() if keyword else None
    position, word_position = n or draw.randint(1, 20), m or draw.randint(1, 30)
    sentences = english.split_sentences(answer)
    if len(sentences) < position:
        return False
    words = english.tokenize_words(sentences[position - 1])
    return len(words) >= word_position and words[word_position - 1] == wanted


def start_end(_: Draw, answer: str) -> bool:
    words = english.tokenize_words(answer)
    return len(words) > 1 and words[0].lower() == words[-1].lower()
