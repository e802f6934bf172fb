"""The instructions of IFEval, checked as NeMo Gym checks them.

Keywords are regular expressions there, and an argument that a row leaves out is drawn at random: here by `Draw`, which
draws the same for the same row. An exception means that the instruction is not followed.
"""

from __future__ import annotations

import json
import random
import re
import string
from typing import Any, Final

from . import counting, english

Draw = random.Random
_RELATIONS: Final = ("less than", "at least")
_NOWHERE: Final = r"(?!)"
"""Stands for a keyword that the row does not name: no answer can contain it but by chance."""
_CODES: Final = "en es pt ar hi fr ru de ja it bn uk th ur ta te bg ko pl he fa vi ne sw kn mr gu pa ml fi"
_LANGUAGES: Final = frozenset(_CODES.split())


def draw_if_missing(draw: Draw, value: Any, low: int, high: int) -> Any:
    """A row's number, or one drawn if it has none or a negative one."""
    return draw.randint(low, high) if value is None or value < 0 else value


def holds(draw: Draw, count: int, relation: Any, limit: Any) -> bool:
    """Whether a count is in a row's relation to a limit."""
    if relation is None:
        relation = draw.choice(_RELATIONS)
    elif relation not in _RELATIONS:
        raise ValueError(f"unknown relation {relation!r}")
    return bool(count < limit if relation == "less than" else count >= limit)


def count_keyword(answer: str, keyword: Any) -> int:
    """How often a keyword, which is a regular expression, occurs in either case."""
    return len(re.findall(keyword.strip() if keyword else _NOWHERE, answer, re.IGNORECASE))


def count_paragraphs(answer: str, divider: str) -> int:
    """The number of paragraphs; -1 if one between two dividers is empty."""
    paragraphs = [part.strip() for part in re.split(divider, answer)]
    return sum(map(bool, paragraphs)) if all(paragraphs[1:-1]) else -1


def existence(_: Draw, answer: str, *, keywords: Any = None) -> bool:
    return bool(keywords) and all(re.search(keyword, answer, re.IGNORECASE) for keyword in sorted(keywords))


def frequency(draw: Draw, answer: str, *, keyword: Any = None, frequency: Any = None, relation: Any = None) -> bool:
    limit = draw_if_missing(draw, frequency, 1, 3)
    return holds(draw, count_keyword(answer, keyword), relation, limit)


def forbidden_words(_: Draw, answer: str, *, forbidden_words: Any = None) -> bool:
    words = sorted(set(forbidden_words or ()))
    return not any(re.search(r"\b" + word + r"\b", answer, re.IGNORECASE) for word in words)


def letter_frequency(
    draw: Draw, answer: str, *, letter: Any = None, let_frequency: Any = None, let_relation: Any = None
) -> bool:
    if not letter or len(letter) > 1 or not ord("a") <= ord(letter.lower()) <= ord("z"):
        letter = draw.choice(string.ascii_letters)
    limit = draw_if_missing(draw, let_frequency, 1, 10)
    return holds(draw, answer.lower().count(letter.lower()), let_relation, limit)


def response_language(draw: Draw, answer: str, *, language: Any = None) -> bool:
    if language is None:
        language = draw.choice(sorted(_LANGUAGES))
    return language in _LANGUAGES and english.is_language(answer, language)


def number_sentences(draw: Draw, answer: str, *, num_sentences: Any = None, relation: Any = None) -> bool:
    limit = draw_if_missing(draw, num_sentences, 1, 20)
    return holds(draw, english.count_sentences(answer), relation, limit)


def number_words(draw: Draw, answer: str, *, num_words: Any = None, relation: Any = None) -> bool:
    limit = draw_if_missing(draw, num_words, 100, 500)
    return holds(draw, counting.words(answer), relation, limit)


def number_paragraphs(draw: Draw, answer: str, *, num_paragraphs: Any = None) -> bool:
    return bool(count_paragraphs(answer, r"\s?\*\*\*\s?") == draw_if_missing(draw, num_paragraphs, 1, 5))


def nth_paragraph_first_word(
    draw: Draw, answer: str, *, num_paragraphs: Any = None, nth_paragraph: Any = None, first_word: Any = None
) -> bool:
    number = draw_if_missing(draw, num_paragraphs, 1, 5)
    position = nth_paragraph
    if position is None or position <= 0 or position > number:
        position = draw.randint(1, number + 1)
    paragraphs = answer.split("\n\n")
    if first_word is None or sum(bool(part.strip()) for part in paragraphs) != number or position > number:
        return False
    words = paragraphs[position - 1].split()
    first = re.split(r"[.,?!'\"]", words[0].lstrip("'").lstrip('"'))[0] if words else ""
    return bool(words) and "".join(map(str.lower, first)) == first_word.lower()


def number_placeholders(draw: Draw, answer: str, *, num_placeholders: Any = None) -> bool:
    return bool(counting.placeholders(answer) >= draw_if_missing(draw, num_placeholders, 1, 4))


def postscript(draw: Draw, answer: str, *, postscript_marker: Any = None) -> bool:
    marker = draw.choice(("P.S.", "P.P.S")) if postscript_marker is None else postscript_marker.strip()
    pattern = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}.get(marker, marker.lower() + ".*$")
    return re.search(pattern, answer.lower(), re.MULTILINE) is not None


def number_bullet_lists(draw: Draw, answer: str, *, num_bullets: Any = None) -> bool:
    stars = re.findall(r"^[^\S\n]*\*[^\*].*$", answer, re.MULTILINE)
    dashes = re.findall(r"^[^\S\n]*-.*$", answer, re.MULTILINE)
    return bool(len(stars) + len(dashes) == draw_if_missing(draw, num_bullets, 1, 5))


def constrained_response(_: Draw, answer: str) -> bool:
    return any(f"My answer is {choice}." in answer for choice in ("yes", "no", "maybe"))


def number_highlighted_sections(draw: Draw, answer: str, *, num_highlights: Any = None) -> bool:
    highlights = re.findall(r"\*([^\n*]*)\*", answer) + re.findall(r"\*\*([^\n*]*)\*\*", answer)
    return bool(sum(bool(highlight.strip()) for highlight in highlights) >= draw_if_missing(draw, num_highlights, 1, 4))


def multiple_sections(draw: Draw, answer: str, *, section_spliter: Any = None, num_sections: Any = None) -> bool:
    heading = draw.choice(("Section", "SECTION")) if section_spliter is None else section_spliter.strip()
    sections = re.split(r"\s?" + heading + r"\s?\d+\s?", answer)
    return bool(len(sections) - 1 >= draw_if_missing(draw, num_sections, 1, 5))


def json_format(_: Draw, answer: str) -> bool:
    text = answer.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    json.loads(text.removesuffix("```").strip())
    return True


def title(_: Draw, answer: str) -> bool:
    return any(_title(line).lstrip("<").rstrip(">").strip() for line in answer.split("\n"))


def _title(line: str) -> str:
    """From the first `<<` to the last `>>` of a line."""
    start, end = line.find("<<"), line.rfind(">>")
    return line[start : end + 2] if 0 <= start < end - 2 else ""


def two_responses(_: Draw, answer: str) -> bool:
    parts = [part.strip() for part in answer.split("******")]
    answers = [part for part in parts if part]
    return all(parts[1:-1]) and len(answers) == 2 and answers[0] != answers[1]


def repeat_prompt(_: Draw, answer: str, *, prompt_to_repeat: Any = None) -> bool:
    return bool(prompt_to_repeat) and answer.strip().lower().startswith(prompt_to_repeat.strip().lower())


def end_checker(draw: Draw, answer: str, *, end_phrase: Any = None) -> bool:
    if end_phrase is None:
        end_phrase = draw.choice(("Any other questions?", "Is there anything else I can help with?"))
    return answer.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def quotation(_: Draw, answer: str) -> bool:
    bare = answer.strip()
    return len(bare) > 1 and bare[0] == bare[-1] == '"'


def capital_word_frequency(
    draw: Draw, answer: str, capital_frequency: Any = None, capital_relation: Any = None
) -> bool:
    limit = draw.randint(1, 20) if capital_frequency is None else capital_frequency
    return holds(draw, sum(map(str.isupper, english.tokenize_words(answer))), capital_relation, limit)


def english_capital(_: Draw, answer: str) -> bool:
    return answer.isupper() and english.is_language(answer, "en")


def english_lowercase(_: Draw, answer: str) -> bool:
    return answer.islower() and english.is_language(answer, "en")


def no_comma(_: Draw, answer: str) -> bool:
    return "," not in answer
