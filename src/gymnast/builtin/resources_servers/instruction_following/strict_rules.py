"""The instructions of IFEval, written from their public definitions: each a pure function of text and arguments.

A function returns True if the answer follows the instruction. An empty answer follows none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Final

from . import counting
from . import strict_added as added
from .arguments import Kind, holds, letter, number, parse_kwargs, position, relation, text, texts
from .languages import detect, known_language


def has_keywords(answer: str, keywords: list[str]) -> bool:
    """The answer contains all keywords, ignoring case."""
    lower = answer.lower()
    return all(keyword.lower() in lower for keyword in keywords)


def keyword_frequency(answer: str, keyword: str, frequency: int, relation: str) -> bool:
    """A keyword appears this often, also inside longer words."""
    return holds(answer.lower().count(keyword.lower()), relation, frequency)


def lacks_words(answer: str, forbidden_words: list[str]) -> bool:
    """None of these appears as a whole word."""
    return not any(
        re.search(rf"(?<!\w){re.escape(word.strip())}(?!\w)", answer, re.IGNORECASE) for word in forbidden_words
    )


def letter_frequency(answer: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    """A letter appears this often, in either case."""
    return holds(answer.lower().count(letter), let_relation, let_frequency)


def response_language(answer: str, language: str) -> bool:
    """The answer is mostly in this language."""
    return detect(answer) == language


def number_sentences(answer: str, num_sentences: int, relation: str) -> bool:
    """The answer has this many sentences."""
    return holds(counting.sentences(answer), relation, num_sentences)


def number_words(answer: str, num_words: int, relation: str) -> bool:
    """The answer has this many words."""
    return holds(counting.words(answer), relation, num_words)


def number_paragraphs(answer: str, num_paragraphs: int) -> bool:
    """The answer has exactly this many paragraphs, divided by `***`."""
    return counting.starred_paragraphs(answer) == num_paragraphs


def nth_paragraph_first_word(answer: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """The answer has this many paragraphs, divided by blank lines, and the n-th starts with this word."""
    paragraphs = [part.strip() for part in re.split(r"\n\n", answer)]
    if sum(1 for part in paragraphs if part) != num_paragraphs or not 1 <= nth_paragraph <= len(paragraphs):
        return False
    first = paragraphs[nth_paragraph - 1].split(maxsplit=1)[:1]
    bare = re.split(r"[.,?!'\"]", first[0].lstrip("'\""), maxsplit=1)[0] if first else ""
    return bare.lower() == first_word.strip().lower()


def number_placeholders(answer: str, num_placeholders: int) -> bool:
    """The answer has at least this many placeholders in square brackets."""
    return counting.placeholders(answer) >= num_placeholders


def postscript(answer: str, postscript_marker: str) -> bool:
    """The answer has a postscript with this marker."""
    patterns = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    pattern = patterns.get(postscript_marker.strip(), re.escape(postscript_marker.strip().lower()))
    return re.search(pattern, answer.lower()) is not None


def number_bullet_lists(answer: str, num_bullets: int) -> bool:
    """The answer has exactly this many bullet points."""
    return counting.bullets(answer) == num_bullets


def constrained_response(answer: str) -> bool:
    """The answer contains one of the three allowed answers."""
    return any(f"My answer is {choice}." in answer for choice in ("yes", "no", "maybe"))


def number_highlighted_sections(answer: str, num_highlights: int) -> bool:
    """The answer has at least this many highlights in stars."""
    return counting.highlights(answer) >= num_highlights


def multiple_sections(answer: str, section_spliter: str, num_sections: int) -> bool:
    """The answer has at least this many sections, each headed by the word and a number."""
    heading = re.compile(re.escape(section_spliter.strip()) + r"\s?\d+")
    return sum(1 for _ in heading.finditer(answer)) >= num_sections


def json_format(answer: str) -> bool:
    """The whole answer is JSON, optionally in a code fence."""
    bare = re.sub(r"\A```(?:json)?", "", answer.strip(), flags=re.IGNORECASE).removesuffix("```")
    try:
        json.loads(bare)
    except (ValueError, RecursionError):
        return False
    return True


def title(answer: str) -> bool:
    """The answer has a title in double angular brackets."""
    return counting.has_title(answer)


def two_responses(answer: str) -> bool:
    """The answer has two different parts, divided by six stars."""
    parts = [part.strip() for part in answer.split("******")]
    if not all(parts[1:-1]):
        return False
    answers = [part for part in parts if part]
    return len(answers) == 2 and answers[0] != answers[1]


def repeat_prompt(answer: str, prompt_to_repeat: str) -> bool:
    """The answer starts with the request, word for word."""
    return answer.strip().lower().startswith(prompt_to_repeat.strip().lower())


def end_checker(answer: str, end_phrase: str) -> bool:
    """The answer ends with this phrase."""
    return answer.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def quotation(answer: str) -> bool:
    """The whole answer is in double quotation marks."""
    bare = answer.strip()
    return len(bare) > 1 and bare[0] == bare[-1] == '"'


def capital_word_frequency(answer: str, capital_frequency: int, capital_relation: str) -> bool:
    """The answer has this many words in capitals."""
    return holds(counting.capital_words(answer), capital_relation, capital_frequency)


def english_capital(answer: str) -> bool:
    """The answer is in English and in capitals only."""
    return answer.isupper() and _may_be_english(answer)


def english_lowercase(answer: str) -> bool:
    """The answer is in English and without capitals."""
    return answer.islower() and _may_be_english(answer)


def no_comma(answer: str) -> bool:
    """The answer has no comma."""
    return "," not in answer


def _may_be_english(answer: str) -> bool:
    return detect(answer, default="en") == "en"


@dataclass(frozen=True, slots=True)
class Instruction:
    """A check and its parameters."""

    check: Callable[..., bool]
    parameters: Mapping[str, Kind] = field(default_factory=dict)


INSTRUCTIONS: Final[Mapping[str, Instruction]] = {
    "keywords:existence": Instruction(has_keywords, {"keywords": texts}),
    "keywords:frequency": Instruction(keyword_frequency, {"keyword": text, "frequency": number, "relation": relation}),
    "keywords:forbidden_words": Instruction(lacks_words, {"forbidden_words": texts}),
    "keywords:letter_frequency": Instruction(
        letter_frequency, {"letter": letter, "let_frequency": number, "let_relation": relation}
    ),
    "language:response_language": Instruction(response_language, {"language": known_language}),
    "length_constraints:number_sentences": Instruction(
        number_sentences, {"num_sentences": number, "relation": relation}
    ),
    "length_constraints:number_paragraphs": Instruction(number_paragraphs, {"num_paragraphs": number}),
    "length_constraints:number_words": Instruction(number_words, {"num_words": number, "relation": relation}),
    "length_constraints:nth_paragraph_first_word": Instruction(
        nth_paragraph_first_word, {"num_paragraphs": number, "nth_paragraph": number, "first_word": text}
    ),
    "detectable_content:number_placeholders": Instruction(number_placeholders, {"num_placeholders": number}),
    "detectable_content:postscript": Instruction(postscript, {"postscript_marker": text}),
    "detectable_format:number_bullet_lists": Instruction(number_bullet_lists, {"num_bullets": number}),
    "detectable_format:constrained_response": Instruction(constrained_response),
    "detectable_format:number_highlighted_sections": Instruction(
        number_highlighted_sections, {"num_highlights": number}
    ),
    "detectable_format:multiple_sections": Instruction(
        multiple_sections, {"section_spliter": text, "num_sections": number}
    ),
    "detectable_format:json_format": Instruction(json_format),
    "detectable_format:title": Instruction(title),
    "combination:two_responses": Instruction(two_responses),
    "combination:repeat_prompt": Instruction(repeat_prompt, {"prompt_to_repeat": text}),
    "startend:end_checker": Instruction(end_checker, {"end_phrase": text}),
    "startend:quotation": Instruction(quotation),
    "change_case:capital_word_frequency": Instruction(
        capital_word_frequency, {"capital_frequency": number, "capital_relation": relation}
    ),
    "change_case:english_capital": Instruction(english_capital),
    "change_case:english_lowercase": Instruction(english_lowercase),
    "punctuation:no_comma": Instruction(no_comma),
    "copy:repeat_phrase": Instruction(added.repeat_phrase, {"phrase": text, "small_n": number}),
    "copy:copy": Instruction(added.copy_prompt, {"prompt_to_repeat": text}),
    "copy:copying_simple": Instruction(added.copy_prompt, {"prompt_to_repeat": text}),
    "copy:copying_multiple": Instruction(added.copying_multiple, {"prompt_to_repeat": text, "N": number}),
    "new:copy_span_idx": Instruction(added.copy_span, {"prompt_to_repeat": text, "n_start": number, "n_end": number}),
    "detectable_format:sentence_hyphens": Instruction(added.sentence_hyphens),
    "detectable_format:square_brackets": Instruction(added.square_brackets),
    "detectable_format:bigram_wrapping": Instruction(added.bigram_wrapping),
    "keywords:no_adjacent_consecutive": Instruction(added.no_adjacent_consecutive),
    "keywords:word_once": Instruction(added.word_once, {"keyword": text}),
    "keywords:word_count_different_numbers": Instruction(
        keyword_frequency, {"keyword": text, "frequency": number, "relation": relation}
    ),
    "keywords:exclude_word_harder": Instruction(added.exclude_word, {"keyword": text}),
    "keywords:palindrome": Instruction(added.palindrome),
    "keywords:keyword_specific_position": Instruction(
        added.keyword_position, {"keyword": text, "n": position, "m": position}
    ),
    "keywords:start_end": Instruction(added.start_end),
    "paragraphs:paragraphs": Instruction(added.starred_pair),
    "paragraphs:paragraphs2": Instruction(added.blank_line_pair),
    "first_word:first_word_sent": Instruction(added.first_word_sent, {"first_word": text}),
    "first_word:first_word_answer": Instruction(added.first_word_answer, {"first_word": text}),
    "last_word:last_word_sent": Instruction(added.last_word_sent, {"last_word": text}),
    "last_word:last_word_answer": Instruction(added.last_word_answer, {"last_word": text}),
    "punctuation:punctuation_dot": Instruction(added.no_dot),
    "punctuation:punctuation_exclamation": Instruction(added.no_exclamation),
    "count:lowercase_counting": Instruction(added.lowercase_counting, {"N": number}),
    "count:counting_composition": Instruction(added.counting_composition, {"n_sent": number, "n_words": number}),
    "count:count_unique": Instruction(added.count_unique),
    "count:count_increment_word": Instruction(added.count_increment_word, {"keyword1": text, "keyword2": text}),
    "letters:letter_counting": Instruction(added.letter_counting, {"N": number, "relation": relation}),
    "letters:letter_counting2": Instruction(
        letter_frequency, {"letter": letter, "let_frequency": number, "let_relation": relation}
    ),
}


def parse_arguments(instruction_id: str, kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Parse the arguments of an instruction. Raises ValueError if it is unknown or an argument is missing."""
    instruction = INSTRUCTIONS.get(str(instruction_id))
    if not isinstance(kwargs, (Mapping, NoneType)):
        raise ValueError(f"instruction '{instruction_id}' has kwargs that are not an object: {kwargs!r:.200}")  # noqa: TRY004 - the row's fault
    if instruction is None:
        raise ValueError(f"unknown instruction '{instruction_id}'; known: {', '.join(INSTRUCTIONS)}")
    try:
        return parse_kwargs(kwargs, instruction.parameters)
    except ValueError as error:
        raise ValueError(f"instruction '{instruction_id}' {error}") from error


def parse_all(ids: Sequence[Any], kwargs_list: Sequence[Any] | None) -> list[dict[str, Any]]:
    """Parse the arguments of all instructions of a row. Raises ValueError for the first that cannot be used."""
    if not ids:
        raise ValueError("instruction_id_list is empty")
    if kwargs_list is None:
        kwargs_list = [None] * len(ids)
    if len(kwargs_list) != len(ids):
        raise ValueError(f"{len(ids)} instructions have {len(kwargs_list)} kwargs")
    return [parse_arguments(name, kwargs) for name, kwargs in zip(ids, kwargs_list, strict=True)]


def check_all(answer: str, ids: Sequence[str], arguments: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Which of the instructions an answer follows."""
    if not answer.strip():
        return [False] * len(ids)
    return [
        INSTRUCTIONS[instruction].check(answer, **kwargs) for instruction, kwargs in zip(ids, arguments, strict=True)
    ]
