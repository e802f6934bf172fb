"""Calls the package's scorers safely. Runs in worker processes: importing reasoning_gym takes seconds.

Some scorers evaluate the answer as Python or as a sympy expression, which would run model-written code. Here their
`eval` reads literals only, and only plain expressions reach sympy. Their `sum` is that of Python 3.12 and later.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
import unicodedata
import warnings
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from gymnast.builtin.float_sums import sum_numbers

if TYPE_CHECKING:
    from gymnast.kit import Scoring

LITERALS_ONLY: Final = ("binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion")
EXPRESSIONS: Final = (
    "countdown",
    "intermediate_integration",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
)
"""Tasks whose scorers evaluate the answer, as Python and as sympy expressions."""
_UNREADABLE: Final = ")"
"""Scored instead of an answer that must not be evaluated: no expression either, as the scorers take most of those."""
_GRID_TASKS: Final = ("arc_agi", "rearc")
_TOKEN: Final = re.compile(r"\s+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[A-Za-z]+|\*\*|[-+*/^(),!=]")
_FUNCTIONS: Final = frozenset(
    {
        "sin",
        "cos",
        "tan",
        "sec",
        "csc",
        "cot",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
    }
    | {"exp", "log", "ln", "sqrt", "cbrt", "pi", "Abs"}
)
_WORD: Final = re.compile("[A-Za-z0-9_\x80-\U0010ffff]+")
_FIRST_LETTER, _LETTERS = 0x4E00, 0x5000
"""Ideographs, which stand for signs in names."""
_OTHER_OPERATORS: Final = frozenset("%&|~<>")
_OPERATOR_WORDS: Final = frozenset({"or", "and", "not", "if", "else", "in", "is", "True", "False", "None"})
"""Words of Python that call and bind nothing."""
_BITWISE: Final = re.compile(r"[0-9a-fA-FxX()+\-*/%&|^~<> ]*")


class RowError(Exception):
    """A row that cannot be scored, regardless of the answer."""


def score(task: str, answer: str | None, entry: dict[str, Any], scoring: Scoring) -> dict[str, Any]:
    """`{"score": …}`, or `{"row_error": …}` for an invalid row."""
    try:
        if scoring == "strict":
            return {"score": _score_strictly(task, answer, entry)}
        _reject_code_in_row(task, entry)
        if answer is not None and task in EXPRESSIONS:
            answer = _write_symbols(answer)
            answer = answer if is_plain_expression(answer, other_symbols=True) else _UNREADABLE
        return {"score": _call_scorer(_scorer(task), answer, entry)}
    except RowError as error:
        return {"row_error": str(error)}


def _score_strictly(task: str, answer: str | None, entry: dict[str, Any]) -> float:
    """Score with the settings that the row was made with, which NeMo Gym's scorers do not know; no answer scores 0."""
    scorer = _scorer(task, *_read_settings(task, entry))
    entry = _restore_types(task, entry)
    _reject_code_in_row(task, entry)
    if answer is None or (task in EXPRESSIONS and not is_plain_expression(answer)):
        return 0.0
    return _call_scorer(scorer, answer, entry)


def is_plain_expression(text: str, *, other_symbols: bool = False) -> bool:
    """Whether a text has only numbers, operators, known functions, and names that stand for nothing but themselves.

    `other_symbols`: also Python's other operators and comments, and lone characters beyond ASCII, such as a Greek or
    Cyrillic constant: sympy takes them for symbols.
    """
    at = 0
    while at < len(text):
        if other_symbols and text[at] == "#":
            end = text.find("\n", at)  # no slices: answers may be long
            at = end if end >= 0 else len(text)
            continue
        if other_symbols and (text[at] in _OTHER_OPERATORS or _is_lone_symbol(text, at)):
            at += 1
            continue
        match = _TOKEN.match(text, at)
        is_operator = match is not None and other_symbols and match[0] in _OPERATOR_WORDS
        if match is None or (match[0].isalpha() and not is_operator and not _is_harmless(match[0])):
            return False
        at = match.end()
    return True


def _is_lone_symbol(text: str, at: int) -> bool:
    char = text[at]
    if char.isascii() or char.isspace() or (char.isidentifier() and len(unicodedata.normalize("NFKC", char)) != 1):
        return False
    neighbours = text[max(0, at - 1) : at] + text[at + 1 : at + 2]
    return all(near.isspace() or (near.isascii() and not near.isalnum() and near != "_") for near in neighbours)


def _write_symbols(text: str) -> str:
    """The text with a letter in the place of each word that is not ASCII, which sympy takes for a symbol.

    For Python 3.12 and later every character beyond ASCII is a part of a name, also a sign, a blank or an accent.
    """
    return _WORD.sub(lambda word: _write_symbol(word[0]), text)


def _write_symbol(word: str) -> str:
    if word.isascii() or word[0] in "0123456789":
        return word
    return chr(_FIRST_LETTER + crc32(word.encode()) % _LETTERS)


def _is_harmless(name: str) -> bool:
    if len(name) == 1 or name in _FUNCTIONS:
        return True
    return not (keyword.iskeyword(name) or hasattr(builtins, name) or hasattr(import_module("sympy"), name))


def task_names() -> list[str]:
    """Every generator of the package except `composite`, which only mixes others."""
    return sorted(set(factory().DATASETS) - {"composite"})


def factory() -> Any:
    """The package's registry of generators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of its dependencies are written for older Pythons
        import_module("reasoning_gym")  # registers the generators
    return import_module("reasoning_gym.factory")


def _call_scorer(scorer: Any, answer: str | None, entry: dict[str, Any]) -> float:
    """Score an answer. One that crashes the scorer is wrong, unless the reference answer does too: then the row is."""
    try:
        return float(scorer.score_answer(answer=answer, entry=entry))
    except Exception as error:  # noqa: BLE001 - third-party scorers raise anything
        try:
            scorer.score_answer(answer=entry["answer"], entry=entry)
        except Exception as again:
            raise RowError(f"the row cannot be scored: {type(error).__name__}: {error}") from again
        return 0.0


@lru_cache(maxsize=256)
def _scorer(task: str, *settings: tuple[str, Any]) -> Any:
    known = task_names()
    if task not in known:
        raise RowError(f"unknown task '{task}'; known: {', '.join(known)}")
    scorer = factory().create_dataset(task, **dict(settings))
    if sys.version_info < (3, 12):
        for owner in {kind.__module__ for kind in type(scorer).__mro__ if kind.__module__.startswith("reasoning_gym.")}:
            sys.modules[owner].sum = sum_numbers  # type: ignore[attr-defined]
    if task in LITERALS_ONLY:
        sys.modules[type(scorer).__module__].eval = ast.literal_eval  # type: ignore[attr-defined]
    return scorer


def _read_settings(task: str, entry: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The generator settings that the scorer of a task depends on."""
    metadata = entry["metadata"]
    difficulty = metadata.get("difficulty")
    difficulty = difficulty if isinstance(difficulty, dict) else {}
    try:
        if task == "word_ladder":
            length = len(metadata["end_word"])
            return (("min_word_length", length), ("max_word_length", length))
        if task == "decimal_arithmetic":
            low, high = difficulty["decimal_places"]
            return (("min_num_decimal_places", int(low)), ("max_num_decimal_places", int(high)))
        if task == "puzzle24":
            low, high = difficulty["value"]
            return (("min_value", int(low)), ("max_value", int(high)))
        if task == "time_intervals":
            return (("max_date_difference_days", int(difficulty["date_difference_days"])),)
    except (KeyError, TypeError, ValueError):
        pass  # rows from other sources may lack them: use the package's defaults
    return ()


def _restore_types(task: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Restore the types that JSON cannot represent."""
    output = entry["metadata"].get("output")
    if task in _GRID_TASKS and isinstance(output, list):
        grid = tuple(tuple(line) if isinstance(line, list) else line for line in output)
        return {**entry, "metadata": {**entry["metadata"], "output": grid}}
    return entry


def _reject_code_in_row(task: str, entry: Mapping[str, Any]) -> None:
    """Raise for code in the fields of the row that scorers evaluate."""
    metadata = entry["metadata"]
    fine = True
    if task == "bitwise_arithmetic":
        fine = _BITWISE.fullmatch(str(metadata.get("problem", ""))) is not None
    elif task in {"simple_integration", "intermediate_integration"}:
        fine = is_plain_expression(str(metadata.get("integrand", "")))
    elif task == "polynomial_multiplication":
        fine = is_plain_expression(str(entry.get("answer") or ""))
    if not fine:
        raise RowError(f"the row of task '{task}' has more than a plain expression")
