"""What a table shows: filter expressions, sorting, pages, and the words of a search.

A filter is `FIELD OP VALUE`, OP one of = != < <= > >= and ~ (contains). `FIELD=` means that there is no value,
`FIELD!=` that there is one. All filters must hold; several `=` on one field are alternatives.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from gymnast.errors import UserError, suggest
from gymnast.studio.run_table import Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    Column = NDArray[np.float64] | Texts
    Rows = NDArray[np.int64]
    Mask = NDArray[np.bool_]

MAX_PAGE: Final = 500
_MAX_FILTERS: Final = 40
_MAX_QUERY: Final = 1000
_FILTER: Final = re.compile(r"\s*(.+?)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*", re.DOTALL)
_QUOTED: Final = re.compile(r'"([^"]+)"|(\S+)')


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a column."""

    name: str
    operator: str
    value: str


@dataclass(frozen=True, slots=True)
class Query:
    """What to show of a table."""

    filters: tuple[Filter, ...] = ()
    words: tuple[str, ...] = ()
    """Texts that must all occur, in lower case."""
    sort: str | None = None
    descending: bool = False
    page: int = 0
    size: int = 50


def parse_query(params: dict[str, list[str]]) -> Query:
    """The query in a URL's parameters. Anything invalid is a UserError."""
    expressions = params.get("f", [])
    text = last_of(params, "q")
    if len(expressions) > _MAX_FILTERS or len(text) > _MAX_QUERY:
        raise UserError(
            "the filter is too long", next=f"at most {_MAX_FILTERS} filters, {_MAX_QUERY} characters of text"
        )
    return Query(
        filters=tuple(map(parse_filter, filter(None, expressions))),
        words=parse_words(text),
        sort=last_of(params, "sort") or None,
        descending=last_of(params, "desc") in ("1", "true"),
        page=parse_count(params, "page", 0, 2**31),
        size=max(1, parse_count(params, "size", 50, MAX_PAGE)),
    )


def last_of(params: dict[str, list[str]], name: str) -> str:
    """The last value of a parameter, or an empty text."""
    return (params.get(name) or [""])[-1]


def parse_count(params: dict[str, list[str]], name: str, default: int, limit: int) -> int:
    text = last_of(params, name)
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 12:
        raise UserError(f"expected a number as {name}, got '{text[:40]}'")
    return min(int(text), limit)


def parse_filter(text: str) -> Filter:
    """A filter expression."""
    match = _FILTER.fullmatch(text)
    if match is None or len(text) > _MAX_QUERY:
        raise UserError(f"cannot read the filter '{text[:80]}'", next="use FIELD OP VALUE, e.g. reward>=0.5")
    return Filter(match[1], match[2], match[3])


def parse_words(text: str) -> tuple[str, ...]:
    """The words of a search; those in double quotes are one."""
    return tuple((match[1] or match[2]).lower() for match in _QUOTED.finditer(text))


# --- filters and order -----------------------------------------------------------------------------------------------


def select_rows(query: Query, count: int, column: Callable[[str], Column | None], names: Iterable[str]) -> Rows:
    """The rows that a query shows, in its order, before any search in texts."""

    def require(name: str) -> Column:
        values = column(name)
        if values is None:
            raise UserError(f"there is no column '{name[:80]}'", next=suggest(name[:80], list(names)))
        return values

    selection = np.ones(count, np.bool_)
    alternatives: dict[str, Mask] = {}
    for condition in query.filters:
        mask = _matches(require(condition.name), condition)
        if condition.operator == "=":
            before = alternatives.get(condition.name)
            alternatives[condition.name] = mask if before is None else before | mask
        else:
            selection &= mask
    for mask in alternatives.values():
        selection &= mask
    rows = np.flatnonzero(selection)
    return _sort(rows, require(query.sort), descending=query.descending) if query.sort else rows


def _matches(values: Column, condition: Filter) -> Mask:
    if isinstance(values, Texts):
        return _matches_text(values, condition)
    known = np.isfinite(values)
    if condition.value == "" and condition.operator in ("=", "!="):
        return known if condition.operator == "!=" else ~known
    if condition.operator == "~":
        wanted = condition.value.lower()
        distinct, numbers = np.unique(values, return_inverse=True)
        matches = np.array([wanted in f"{value:g}" for value in distinct.tolist()], np.bool_)
        has_text: Mask = known & matches[numbers]
        return has_text
    try:
        number = float({"true": "1", "false": "0"}.get(condition.value.lower(), condition.value))
    except ValueError:
        raise UserError(f"'{condition.name}' is a number, got '{condition.value[:40]}'") from None
    compare = {"=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater}
    mask: Mask = compare.get(condition.operator, np.greater_equal)(values, number)
    return mask if condition.operator == "!=" else mask & known


def _matches_text(values: Texts, condition: Filter) -> Mask:
    operator, value = condition.operator, condition.value
    if operator in ("=", "!=") and value == "":
        is_missing: Mask = values.codes < 0
        return is_missing if operator == "=" else ~is_missing
    folded = value.lower()
    tests: dict[str, Callable[[str], bool]] = {
        "=": lambda name: name == value,
        "!=": lambda name: name != value,
        "~": lambda name: folded in name.lower(),
        "<": lambda name: name < value,
        "<=": lambda name: name <= value,
        ">": lambda name: name > value,
        ">=": lambda name: name >= value,
    }
    # The last entry is for rows without a value, which have the code -1.
    matching = np.array([*map(tests[operator], values.names), operator == "!="], np.bool_)
    mask: Mask = matching[values.codes]
    return mask


def _sort(rows: Rows, values: Column, *, descending: bool) -> Rows:
    """Rows by a column; those without a value come last, equal ones stay in order."""
    if isinstance(values, Texts):
        ranks = np.empty(len(values.names) + 1, np.float64)
        ranks[np.argsort(np.array([*values.names, ""], dtype=object)[:-1], kind="stable")] = np.arange(
            len(values.names)
        )
        ranks[-1] = np.nan
        numbers = ranks[values.codes[rows]]
    else:
        numbers = values[rows]
    numbers = np.where(np.isfinite(numbers), -numbers if descending else numbers, np.inf)
    order: Rows = rows[np.argsort(numbers, kind="stable")]
    return order


# --- words -----------------------------------------------------------------------------------------------------------


def escape_words(words: Sequence[str]) -> list[list[bytes]]:
    """Each word as the bytes that it may be in JSON text: as it is, and with escapes."""
    forms = []
    for word in words:
        plain = json.dumps(word, ensure_ascii=False)[1:-1].encode(errors="replace")
        escaped = json.dumps(word)[1:-1].encode()
        forms.append([plain] if plain == escaped else [plain, escaped])
    return forms


def has_all(text: bytes, forms: Sequence[Sequence[bytes]]) -> bool:
    """Whether a text has one form of every word."""
    return all(any(form in text for form in word) for word in forms)
