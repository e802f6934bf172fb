"""Finds the query in a model's answer, and whether it orders its result. Pure functions."""

from __future__ import annotations

import itertools
import re
from typing import Final

_FENCE: Final = "```"
_VERBS: Final = "SELECT|WITH|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|REPLACE|MERGE|VALUES"
_STATEMENT_START: Final = re.compile(rf"^[ \t]*(?:{_VERBS}|{_VERBS.lower()})\b")
_MARKED_FENCE: Final = re.compile(r"```sql\s*", re.IGNORECASE)
_FENCE_AND_SPACE: Final = re.compile(r"```\s*")
_FENCED_STATEMENT: Final = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP)\s", re.IGNORECASE)
_KEYWORD: Final = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH)\s", re.IGNORECASE)
_MAX_KEYWORD: Final = len("SELECT ")
_PIECE: Final = 1 << 16
_DIALECTS: Final = frozenset({"sql", "sqlite", "sqlite3", "mysql", "postgres", "postgresql", "psql", "tsql", "plsql"})
_TOKENS: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|[()]|\w+""", re.DOTALL
)


def extract_query(text: str) -> str | None:
    """The last fenced block marked as SQL, the last fenced block with a query, or the last bare statement."""
    blocks = _fenced_blocks(text)
    marked = [body for language, body in blocks if language in _DIALECTS and body]
    candidates = marked or [body for _, body in blocks if _STATEMENT_START.match(body)]
    query = candidates[-1] if candidates else _bare_statement(text)
    return query.rstrip().rstrip(";").rstrip() or None if query else None


def extract_query_as_nemo_gym(text: str) -> str | None:
    """The last block marked as SQL, the last fenced statement, or all from the first keyword to the last semicolon."""
    marked = _between_fences(text, _MARKED_FENCE)
    if marked:
        return marked[-1]
    statements = [block for block in _between_fences(text, _FENCE_AND_SPACE) if _FENCED_STATEMENT.match(block)]
    if statements:
        return statements[-1]
    keyword = _first_keyword(text)
    if keyword is None:
        return None
    end = text.rfind(";")
    statement = text[keyword.start() : end + 1] if end >= keyword.start() else text[keyword.start() :]
    return statement.strip().rstrip(";") + ";"


def is_ordered(sql: str) -> bool:
    """Whether the order of rows is part of the result: an ORDER BY outside of parentheses, strings and comments."""
    depth, previous = 0, ""
    for match in _TOKENS.finditer(sql):
        token = match[0].upper()
        if token == "BY" and previous == "ORDER" and depth == 0:
            return True
        depth += (token == "(") - (token == ")")
        previous = token
    return False


def _first_keyword(text: str) -> re.Match[str] | None:
    """Searches piece by piece: one search of a megabyte would keep other threads waiting for 50 ms."""
    pieces = (_KEYWORD.search(text, start, start + _PIECE + _MAX_KEYWORD) for start in range(0, len(text), _PIECE))
    return next((match for match in pieces if match is not None), None)


def _between_fences(text: str, opening: re.Pattern[str]) -> list[str]:
    """The texts between an opening and the next fence, wherever in a line these are."""
    blocks: list[str] = []
    start = opening.search(text)
    while start is not None:
        end = text.find(_FENCE, start.end())
        if end < 0:
            break
        blocks.append(text[start.end() : end].strip())
        start = opening.search(text, end + len(_FENCE))
    return blocks


def _fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Language and content of each complete fenced block. Line by line: a pattern could be slow on odd text."""
    blocks: list[tuple[str, str]] = []
    language: str | None = None
    content: list[str] = []
    for line in text.split("\n"):
        bare = line.strip()
        if not bare.startswith(_FENCE):
            content.append(line)
        elif language is None:
            language, content = bare[len(_FENCE) :].strip().lower(), []
        else:
            blocks.append((language, "\n".join(content).strip()))
            language = None
    return blocks


def _bare_statement(text: str) -> str | None:
    """The statement in the last paragraph that has one: from its first word to its last semicolon, if any."""
    lines = text.split("\n")
    start, inside = None, False
    for number, line in enumerate(lines):
        if not line or line.isspace():
            inside = False
        elif not inside and _STATEMENT_START.match(line):
            start, inside = number, True
    if start is None:
        return None
    paragraph = itertools.takewhile(lambda line: line and not line.isspace(), lines[start:])
    statement = "\n".join(paragraph).strip()
    end = statement.rfind(";")
    return statement[:end] if end > 0 else statement
