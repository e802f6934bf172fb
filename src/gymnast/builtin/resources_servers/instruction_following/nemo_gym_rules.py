"""Checks instructions as NeMo Gym does: one that is unknown, or whose arguments do not suit it, is not followed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from . import nemo_gym_ifeval as ifeval
from . import nemo_gym_open_instruct as open_instruct

Rule = Callable[..., bool]
_NAMES: Final[Mapping[str, tuple[Any, str]]] = {
    "keywords": (ifeval, "existence frequency forbidden_words letter_frequency"),
    "language": (ifeval, "response_language"),
    "length_constraints": (ifeval, "number_sentences number_paragraphs number_words nth_paragraph_first_word"),
    "detectable_content": (ifeval, "number_placeholders postscript"),
    "detectable_format": (
        ifeval,
        "number_bullet_lists constrained_response number_highlighted_sections multiple_sections json_format title",
    ),
    "combination": (ifeval, "two_responses repeat_prompt"),
    "startend": (ifeval, "end_checker quotation"),
    "change_case": (ifeval, "capital_word_frequency english_capital english_lowercase"),
    "punctuation": (ifeval, "no_comma"),
}
_ADDED: Final[Mapping[str, str]] = {
    "copy": "repeat_phrase copying_multiple",
    "new": "copy_span_idx",
    "detectable_format": "sentence_hyphens square_brackets bigram_wrapping",
    "keywords": "no_adjacent_consecutive word_once exclude_word_harder palindrome keyword_specific_position start_end",
    "paragraphs": "paragraphs paragraphs2",
    "first_word": "first_word_sent first_word_answer",
    "last_word": "last_word_sent last_word_answer",
    "punctuation": "punctuation_dot punctuation_exclamation",
    "count": "lowercase_counting counting_composition count_unique count_increment_word",
    "letters": "letter_counting",
}
IFEVAL: Final[Mapping[str, Rule]] = {
    f"{group}:{name}": getattr(module, name) for group, (module, names) in _NAMES.items() for name in names.split()
}
ADDED: Final[Mapping[str, Rule]] = {
    **{f"{group}:{name}": getattr(open_instruct, name) for group, names in _ADDED.items() for name in names.split()},
    "copy:copy": open_instruct.copy_prompt,
    "copy:copying_simple": open_instruct.copy_prompt,
    "keywords:word_count_different_numbers": ifeval.frequency,
    "letters:letter_counting2": ifeval.letter_frequency,
}
RULES: Final[Mapping[str, Rule]] = {**IFEVAL, **ADDED}


def check_all(answer: str, ids: Sequence[Any], kwargs_list: Sequence[Any]) -> list[bool]:
    """Which of the instructions an answer follows, as far as there are kwargs for them."""
    return [_is_followed(answer, name, kwargs) for name, kwargs in zip(ids, kwargs_list, strict=False)]


def _is_followed(answer: str, name: Any, kwargs: Any) -> bool:
    try:
        arguments = {key: value for key, value in ({} if kwargs is None else kwargs).items() if value is not None}
        draw = random.Random(json.dumps([name, arguments], sort_keys=True))  # noqa: S311 - not for security
        return bool(RULES[name](draw, answer, **arguments))
    except Exception:  # noqa: BLE001 - invalid patterns and arguments of any type: NeMo Gym says "not followed"
        return False
