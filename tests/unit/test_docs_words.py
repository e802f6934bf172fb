"""The pages speak plain technical English: words that make a sentence vague or read as translated do not appear."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
GENERATED: Final = {
    ROOT / "docs" / "commands.md",
    ROOT / "docs" / "failures.md",
    ROOT / "docs" / "debugging" / "rules.md",
}
PAGES: Final = sorted(
    {
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("skills/**/*.md"),
        *ROOT.glob("distributions/*/README.md"),
    }
    - GENERATED
)
AVOIDED: Final = re.compile(
    r"\b(nobody|somebody|anybody|whoever|begun|beside|needless|mended|laid over|in vain|for ever|tried again|"
    r"by (?:it|them)selves|found by itself|for good|stands? beside|(?:is|are) no [a-z]+ of|out of reach|"
    r"(?:is|are|was|were) (?:told|said)(?! apart)|(?:take|need)s? no room|(?:laid|put) down to|do(?:es)? not mind)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_plain_words(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert not AVOIDED.findall(prose)


def test_every_word_of_the_glossary_is_defined_once() -> None:
    glossary = (ROOT / "docs" / "concepts.md").read_text().partition("## Glossary")[2]
    words = [word for word in re.findall(r"^\| ([^|]+?) \|", glossary, re.MULTILINE) if word not in {"word", "---"}]
    assert len(words) > 80
    assert len(words) == len(set(words))
    for section in glossary.split("\n### ")[1:]:
        listed = [word.casefold() for word in re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE) if word != "word"]
        assert listed == sorted(listed), section.partition("\n")[0]
