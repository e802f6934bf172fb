"""Checks of tool arguments: dates, addresses, names the office uses. A check returns the problem of a text, or None."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from .tables import OfficeData

Check = Callable[[OfficeData, str], str | None]

_ADDRESS: Final = re.compile(r"[^@\s]+@[^@\s]+")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}", re.ASCII)
_DIRECTORY: Final = "company_directory_find_email_address finds addresses."


def any_text(_: OfficeData, __: str) -> str | None:
    """Any text, also empty."""
    return None


def some_text(_: OfficeData, text: str) -> str | None:
    """Not empty."""
    return None if text.strip() else "must not be empty."


def an_address(_: OfficeData, text: str) -> str | None:
    """Looks like an e-mail address."""
    return None if _ADDRESS.fullmatch(text) else f"must be an e-mail address, not '{text}'. {_DIRECTORY}"


def a_colleague(office_data: OfficeData, text: str) -> str | None:
    """The address of a person who can be assigned work."""
    known = text.lower() in office_data.colleagues
    return None if known else f"must be a colleague's address; no colleague has '{text}'. {_DIRECTORY}"


def a_day(_: OfficeData, text: str) -> str | None:
    """YYYY-MM-DD."""
    return None if is_day(text) else f"must be a date such as 2025-03-31, not '{text}'."


def a_moment(_: OfficeData, text: str) -> str | None:
    """YYYY-MM-DD HH:MM:SS."""
    return None if is_moment(text) else f"must be a time such as 2025-03-31 14:30:00, not '{text}'."


def a_day_or_moment(_: OfficeData, text: str) -> str | None:
    """A day or a moment."""
    fits = is_day(text) or is_moment(text)
    return None if fits else f"must be a date such as 2025-03-31, or 2025-03-31 14:30:00, not '{text}'."


def minutes(_: OfficeData, text: str) -> str | None:
    """A whole number of minutes, as text."""
    fits = text.isascii() and text.isdecimal() and text.strip("0")
    return None if fits else f"must be a whole number of minutes such as '30', not '{text}'."


def one_of(choose: Callable[[OfficeData], Sequence[str]]) -> Check:
    """One of the names that the office uses, in the same spelling."""

    def check(office_data: OfficeData, text: str) -> str | None:
        allowed = choose(office_data)
        return None if text in allowed else f"must be one of {', '.join(allowed)}; not '{text}'."

    return check


def or_empty(inner: Check) -> Check:
    """Empty, or what the inner check allows."""

    def check(office_data: OfficeData, text: str) -> str | None:
        return inner(office_data, text) if text else None

    return check


def is_day(text: str) -> bool:
    """Whether a text is a date, YYYY-MM-DD."""
    return _DAY.fullmatch(text) is not None and _exists(text)


def is_moment(text: str) -> bool:
    """Whether a text is a time, YYYY-MM-DD HH:MM:SS."""
    return _MOMENT.fullmatch(text) is not None and _exists(text)


def _exists(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
