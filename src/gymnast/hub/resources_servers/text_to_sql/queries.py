"""Finding a query in a model's answer, and what its text says about its result. Pure functions."""

from __future__ import annotations

import itertools
import re
from typing import Final

_FENCE: Final = "```"
_VERBS: Final = "SELECT|WITH|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|REPLACE|MERGE|VALUES"
_BEGINS: Final = re.compile(rf"^[ \t]*(?:{_VERBS}|{_VERBS.lower()})\b")
_DIALECTS: Final = frozenset({"sql", "sqlite", "sqlite3", "mysql", "postgres", "postgresql", "psql", "tsql", "plsql"})
_TOKENS: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|[()]|\w+""", re.DOTALL
)


def query_in(text: str) -> str | None:
    """The last fenced block that is marked as SQL, else the last fenced one, else the last bare statement."""
    blocks = _fenced_blocks(text)
    marked = [body for language, body in blocks if language in _DIALECTS and body]
    found = marked or [body for _, body in blocks if _BEGINS.match(body)]
    query = found[-1] if found else _bare_statement(text)
    return query.rstrip().rstrip(";").rstrip() or None if query else None


def is_ordered(sql: str) -> bool:
    """Whether the order of the rows is part of the result: an ORDER BY outside of parentheses, texts and comments."""
    depth, previous = 0, ""
    for match in _TOKENS.finditer(sql):
        token = match[0].upper()
        if token == "BY" and previous == "ORDER" and depth == 0:
            return True
        depth += (token == "(") - (token == ")")
        previous = token
    return False


def _fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Language and content of each complete fenced block. Line by line: a pattern could take very long on odd text."""
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
    """The statement in the last paragraph that has one: from its first word to its last semicolon, if there is one."""
    lines = text.split("\n")
    begin, inside = None, False
    for number, line in enumerate(lines):
        if not line or line.isspace():
            inside = False
        elif not inside and _BEGINS.match(line):
            begin, inside = number, True
    if begin is None:
        return None
    paragraph = itertools.takewhile(lambda line: line and not line.isspace(), lines[begin:])
    statement = "\n".join(paragraph).strip()
    end = statement.rfind(";")
    return statement[:end] if end > 0 else statement
