"""Describes an error of a remote process by its innermost cause and its exception, not by its traceback. Pure.

Ray's errors print as a traceback whose last lines say what happened, and pickling drops `__cause__`: the causes are
then only in the text.
"""

from __future__ import annotations

import re
from typing import Final

_CHAINED: Final = re.compile(
    r"\n\s*(?:The above exception was the direct cause of the following exception:"
    r"|During handling of the above exception, another exception occurred:)\s*\n"
)
_FRAME: Final = re.compile(r'^\s+File ".*", line \d+')
_MODULE: Final = re.compile(r"^(?:[\w<>]+\.)+")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_SEPARATOR: Final = "; raised as "
_MAX_CHARS: Final = 800


def describe_error(error: BaseException) -> str:
    """The innermost cause, and the exception if it is another: `RuntimeError: CUDA …; raised as EngineDeadError: …`.

    The cause comes first: what shows the text may shorten it.
    """
    texts = list(dict.fromkeys(_texts_of(error)))  # a cause that was pickled is also in the text, with its own causes
    ends = list(dict.fromkeys([texts[-1], texts[0]]))
    return _SEPARATOR.join(_truncate_middle(text, _MAX_CHARS // len(ends)) for text in ends)


def _texts_of(error: BaseException) -> list[str]:
    """The exceptions of a chain, innermost last."""
    texts: list[str] = []
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and not any(current is other for other in chain):
        chain.append(current)
        texts += _texts_in(current.message if isinstance(current, BaseExceptionGroup) else str(current), current)
        current = _cause_of(current)
    return texts


def _texts_in(text: str, error: BaseException) -> list[str]:
    """The exceptions that a message or a printed traceback names, innermost last."""
    plain = _COLOUR.sub("", text).strip()
    if not any(_FRAME.match(line) for line in plain.splitlines()):
        return [_join_lines(f"{type(error).__name__}: {plain}" if plain else type(error).__name__)]
    return [_MODULE.sub("", _join_lines(_after_frames(block))) for block in reversed(_CHAINED.split(plain))]


def _after_frames(block: str) -> str:
    """What a traceback says after its last frame."""
    lines = block.splitlines()
    start = max((index for index, line in enumerate(lines) if _FRAME.match(line)), default=-1) + 1
    while start < len(lines) and lines[start].startswith((" ", "\t")):
        start += 1
    return "\n".join(lines[start:]) or lines[-1]


def _cause_of(error: BaseException) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        first: BaseException = error.exceptions[0]
        return first
    cause = getattr(error, "cause", None) or error.__cause__
    if isinstance(cause, BaseException):
        return cause
    return None if error.__suppress_context__ else error.__context__


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _truncate_middle(text: str, limit: int) -> str:
    """Head and tail of a long text: messages begin with what happened and end with why."""
    half = (limit - 3) // 2
    return text if len(text) <= limit else f"{text[:half]} … {text[-half:]}"
