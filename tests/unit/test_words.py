"""Messages and help texts avoid phrases that a native technical writer would not use."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gymnast"
WORST = {
    r"nobody|somebody|whoever|whom|who did": "name the user, the process or the program",
    r"what is there|which there are|that are there|there is none|(?:run|file) is there": "say what exists",
    r"(?<!there )(?:is|are) no (?!longer)\w+": "is not a …",
    r"begun|beside|anew|thereof|needless(?:ly)?|mend(?:s|ed)?": "started, next to, again, unnecessary, fixed",
    r"in words|of drawing|laid over|by itself|ways on|heard of|numbered on": "say what happens, automatically",
    r"(?:is|are|was|were) (?:told|said)(?! apart)|of (?:its|their|your) own,": "reported, asked, own …, separate …",
    r"knows? (?:no|nothing)|without losing one|stands? in each": "say what is unknown, lost or included",
    r"out of reach": "unreachable",
    r"(?:is|are|was|were) given twice": "named twice",
}
"""Patterns of phrases, and what to write instead."""
PATTERNS = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), advice) for pattern, advice in WORST.items()]
TASK_TEXTS = frozenset({"vocabulary.py", "templates.py", "task_writing.py", "tasks.py", "language_words.py"})
"""Files of built-in environments whose texts are for the policy or the judge."""
OLD_MESSAGES = frozenset({("doctor/rules/kinds.py", "out of reach"), ("doctor/rules/logs.py", "is not what it was")})
"""Doctor still recognizes these in the notes and logs of earlier runs."""
PARTICIPLES = re.compile(
    r"(?!(?:seed|need|feed|speed|embed|exceed|proceed|succeed|shed)$)[a-z]+ed"
    r"|found|kept|said|told|given|taken|known|seen|shown|sent|built|held|left|lost|made|drawn|chosen|begun|written"
)
OLD_NAMES = frozenset({"bounded", "masked"})
"""Names that authors and trainers may use."""
RULES = SOURCE / "doctor" / "rules"
"""A rule has the name of the note or finding that it makes."""
FUNCTION = re.compile(r"(?P<decorators>(?:^[ ]*@.*\n)*)^[ ]*(?:async )?def (?P<name>\w+)", re.MULTILINE)


def messages(tree: ast.Module, *, is_command: bool) -> Iterator[ast.Constant]:
    """String literals with a space in them; of docstrings only those that are the help of a command."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    if is_command:
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
        docstrings -= {id(node.body[0].value) for node in functions if isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in docstrings
        ):
            yield node


def worst_words(text: str) -> Iterator[tuple[str, str]]:
    for pattern, advice in PATTERNS:
        if (match := pattern.search(text)) is not None:
            yield match[0], advice


def test_messages_and_help_avoid_the_worst_words() -> None:
    hits: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        if name.parts[0] == "builtin" and name.name in TASK_TEXTS:
            continue
        for node in messages(ast.parse(path.read_text()), is_command=name.parts[0] == "cli"):
            hits += [
                f"{path.relative_to(ROOT)}:{node.lineno}: {word!r} in {node.value!r}; better: {advice}"
                for word, advice in worst_words(str(node.value))
                if (str(name), word) not in OLD_MESSAGES
            ]
    assert not hits, "\n".join(["", *hits])


def test_functions_are_verbs_not_participles() -> None:
    hits: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        for match in FUNCTION.finditer(path.read_text()):
            if not PARTICIPLES.fullmatch(match["name"].strip("_")) or match["name"] in OLD_NAMES:
                continue
            if "property" not in match["decorators"] and not path.is_relative_to(RULES):
                hits.append(f"{path.relative_to(ROOT)}: {match['name']}")
    assert not hits, "\n".join(["functions named by a participle; use a verb:", *hits])


def test_the_texts_of_doctors_tables_avoid_the_worst_words() -> None:
    hits: list[str] = []
    for path in sorted(SOURCE.glob("doctor/tables/*.toml")):
        for row in tomllib.loads(path.read_text()).values():
            texts = [text for field, text in row.items() if field in {"symptom", "cause", "action", "about"}]
            hits += [f"{path.name}: {word!r} in {text!r}" for text in texts for word, _ in worst_words(text)]
    assert not hits, "\n".join(["", *hits])


@pytest.mark.parametrize(
    "text",
    [
        "'x' is no number of rollouts",
        "nobody answers",
        "Merge what is there",
        "the key is needless",
        "Laid over each row",
        "the worker was told to end",
    ],
)
def test_the_worst_words_are_found(text: str) -> None:
    assert list(worst_words(text))


@pytest.mark.parametrize(
    "text", ["there is no run 'x'", "the job is no longer known", "the user started it", "there are no tools"]
)
def test_plain_sentences_pass(text: str) -> None:
    assert not list(worst_words(text))
