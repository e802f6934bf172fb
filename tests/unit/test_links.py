"""Every relative link and anchor of the README, the docs and the skills leads somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("skills/**/*.md"),
        *ROOT.glob("src/**/README.md"),
        *ROOT.glob("distributions/*/README.md"),
    ]
)
_FENCED: Final = re.compile(r"^(```|~~~).*?^\1[^\S\n]*$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(
    r"\]\(<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\)|(?:href|src)=\"([^\"]+)\"|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE
)
_ELSEWHERE: Final = ("http://", "https://", "mailto:")


def prose(page: Path) -> str:
    """The page without its code."""
    return re.sub(r"`[^`\n]+`", "", _FENCED.sub("", page.read_text()))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page: its headings, numbered where they repeat, and its own ids."""
    seen: dict[str, int] = {}
    ids = set(re.findall(r"(?:id|name)=\"([^\"]+)\"", page.read_text()))
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", _FENCED.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        ids.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return frozenset(ids)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.finditer(prose(page)):
        address = next(filter(None, link.groups()))
        if address.startswith(_ELSEWHERE):
            continue
        path, _, anchor = address.partition("#")
        target = page if not path else page.parent / path
        assert target.exists(), f"{page.name} links to {address}, which does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.resolve()), f"{page.name} links to {address}, which has no such heading"


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `word`\n\n## Same\n\n## Same\n\n`[no](link)` [yes](other.md#there) ![x](pic.png)\n")
    assert anchors(page) == {"one-word", "same", "same-1"}
    assert [next(filter(None, link.groups())) for link in _LINK.finditer(prose(page))] == ["other.md#there", "pic.png"]
