"""Times as NeMo Gym's tools read them: in any of the usual spellings, not only YYYY-MM-DD HH:MM:SS."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Any, Final

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FULL_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october"),
    *("november", "december"),
)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_FILLERS: Final = frozenset({"at", "on", "and", "ad", "of", "st", "nd", "rd", "th", "t"})
_NOTHING: Final = frozenset({"nat", "nan", "NaT", "NaN", "NAT", "NAN", "", "<NA>", "NA", "N/A"})
_ZONE: Final = re.compile(r"\s*(Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)$")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.,](\d{1,9}))?)?")
_ISO: Final = re.compile(
    r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?"
    r"(?:[T ](\d{1,2})(?::(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?)?"
)
_TOKEN: Final = re.compile(r"\d+|[A-Za-z]+|[^\sA-Za-z\d]")
_NANOSECONDS: Final = 1000
_MAX_NUMBER: Final = 2**63
_FIRST_YEAR: Final = 1000


class UnreadableTimeError(ValueError):
    """The text is not a time."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time; without one (`at` is None) every comparison is false."""

    at: datetime | None

    def __ge__(self, other: Moment) -> bool:
        return self.at is not None and other.at is not None and _compare(self.at, other.at) >= 0

    def __le__(self, other: Moment) -> bool:
        return self.at is not None and other.at is not None and _compare(self.at, other.at) <= 0

    def __lt__(self, other: Moment) -> bool:
        return self.at is not None and other.at is not None and _compare(self.at, other.at) < 0

    def date(self) -> date:
        """The day."""
        if self.at is None:
            raise TypeError("Cannot compare NaT with datetime.date object")
        return self.at.date()


def _compare(one: datetime, other: datetime) -> int:
    if (one.tzinfo is None) != (other.tzinfo is None):
        raise TypeError("Cannot compare tz-naive and tz-aware timestamps")
    return (one > other) - (one < other)


def read_time(value: Any) -> Moment:
    """The time that a value says. Raises ValueError for other texts and TypeError for other kinds of values."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"Cannot convert input [{value}] of type {type(value)} to Timestamp")
    if not isinstance(value, str):
        return _from_number(value)
    if value in _NOTHING:
        return Moment(None)
    if value in {"now", "today"}:
        return Moment(datetime.now())  # noqa: DTZ005 - the words mean the clock of the host there too
    if re.fullmatch(r"-\d{1,4}", value):
        return Moment(datetime.min)  # noqa: DTZ901 - a year before all others
    return Moment(_from_text(value))


def _from_number(value: float) -> Moment:
    if value != value:  # noqa: PLR0124 - not a number
        return Moment(None)
    if not -_MAX_NUMBER < value < _MAX_NUMBER:
        raise ValueError(f"Out of bounds timestamp {value}")
    return Moment(datetime(1970, 1, 1) + timedelta(microseconds=int(value) // _NANOSECONDS))  # noqa: DTZ001


def _from_text(text: str) -> datetime:
    zone_match = _ZONE.search(text.strip())
    has_clock = ":" in text or "T" in text
    zone = _zone(zone_match[1]) if zone_match and has_clock else None
    plain = text.strip()[: zone_match.start()] if zone is not None and zone_match else text.strip()
    if _is_small_number(plain):
        raise UnreadableTimeError(f'Given date string "{text}" not likely a datetime')
    iso = _ISO.fullmatch(plain)
    parts = _iso_parts(iso) if iso else _Loose(plain, text).parts()
    try:
        return datetime(*parts, tzinfo=zone)  # type: ignore[misc,arg-type]
    except (ValueError, OverflowError) as error:
        raise UnreadableTimeError(f"{_reason(parts, str(error))}: {text}") from error


def _is_small_number(text: str) -> bool:
    """Whether a text is a number rather than a date."""
    try:
        return text.isascii() and not text.startswith("0") and float(text) < _FIRST_YEAR
    except ValueError:
        return False


def _reason(parts: Sequence[int], text: str) -> str:
    """The same words in all versions of Python."""
    year, month, day = parts[:3]
    if 1 <= month <= 12 and not 1 <= day <= monthrange(max(1, min(year, 9999)), month)[1]:
        return "day is out of range for month"
    return re.sub(r", not .*$", "", text)


def _zone(text: str) -> timezone:
    if text in {"Z", "UTC", "GMT"}:
        return timezone.utc  # noqa: UP017 - the class is needed
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _iso_parts(match: re.Match[str]) -> tuple[int, ...]:
    year, month, day, hour, minute, second, fraction = match.groups()
    return (int(year), int(month), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), _micro(fraction))


def _micro(fraction: str | None) -> int:
    return int((fraction or "0").ljust(6, "0")[:6])


class _Loose:
    """Reads dates with names of months, slashes, and clocks with am and pm."""

    def __init__(self, text: str, original: str) -> None:
        self.original = original
        self.clock: tuple[int, int, int, int] | None = None
        self.numbers: list[str] = []
        self.month: int | None = None
        self.weekday = False
        self._read(text)

    def unreadable(self) -> UnreadableTimeError:
        return UnreadableTimeError(f"Unknown datetime string format, unable to parse: {self.original}")

    def _read(self, text: str) -> None:
        clock = _CLOCK.search(text)
        if clock:
            hour, minute, second, fraction = clock.groups()
            self.clock = int(hour), int(minute), int(second or 0), _micro(fraction)
            text = f"{text[: clock.start()]} {text[clock.end() :]}"
        for token in _TOKEN.findall(text):
            self._take(token)

    def _take(self, token: str) -> None:
        word = token.lower()
        if token.isdigit():
            self.numbers.append(token)
        elif word in {"am", "pm", "a", "p"}:
            self._take_half(pm=word[0] == "p")
        elif word in _MONTHS or word in _FULL_MONTHS or word == "sept":
            if self.month is not None:
                raise self.unreadable()
            self.month = _MONTHS.index(word[:3]) + 1
        elif word in _DAYS or word in {name[:3] for name in _DAYS}:
            self.weekday = True
        elif word not in _FILLERS and token not in {",", ".", "-", "/", ";"}:
            raise self.unreadable()

    def _take_half(self, *, pm: bool) -> None:
        if self.clock is None and self.numbers:
            self.clock = int(self.numbers.pop()), 0, 0, 0
        if self.clock is None or not 1 <= self.clock[0] <= 12:
            raise self.unreadable()
        hour, *rest = self.clock
        self.clock = (hour % 12 + 12 * pm, *rest)  # type: ignore[assignment]

    def parts(self) -> tuple[int, ...]:
        if self.month is None and not self.numbers:
            if self.clock is None:
                raise UnreadableTimeError(f"Unable to parse datetime string: {self.original}")
            today = datetime.now()  # noqa: DTZ005 - a clock alone means today
            return today.year, today.month, today.day, *self.clock
        return *self._day(), *(self.clock or (0, 0, 0, 0))

    def _day(self) -> tuple[int, int, int]:
        numbers = self.numbers
        if self.month is not None:
            return self._day_of_month(self.month)
        if len(numbers) == 1:
            return self._compact(numbers[0])
        if len(numbers) != 3:
            if len(numbers) == 2 and len(numbers[1]) == 4:
                return int(numbers[1]), int(numbers[0]), 1
            raise self.unreadable()
        first, second, third = (int(number) for number in numbers)
        if len(numbers[0]) > 2:
            return first, second, third
        year = third if len(numbers[2]) > 2 else _century(third)
        return (year, second, first) if first > 12 else (year, first, second)

    def _day_of_month(self, month: int) -> tuple[int, int, int]:
        years = [number for number in self.numbers if len(number) > 2]
        days = [number for number in self.numbers if len(number) <= 2]
        if len(years) > 1 or len(days) > 2 or (years and len(days) > 1):
            raise self.unreadable()
        if len(days) == 2:
            return _century(int(days[1])), month, int(days[0])
        return int(years[0]) if years else 1, month, int(days[0]) if days else 1

    def _compact(self, number: str) -> tuple[int, int, int]:
        if len(number) == 8:
            return int(number[:4]), int(number[4:6]), int(number[6:])
        if len(number) == 6:
            return int(number[:4]), int(number[4:]), 1
        return (1, 1, int(number)) if len(number) <= 2 else (int(number), 1, 1)


def _century(year: int) -> int:
    now = datetime.now().year  # noqa: DTZ005 - which century is meant
    candidate = now // 100 * 100 + year
    return candidate - 100 if candidate >= now + 50 else candidate
