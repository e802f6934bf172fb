"""The architecture page and its picture show every package, in an order in which imports only go back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "gymnast"
PACKAGES: Final = {path.parent.name for path in SOURCE.glob("*/__init__.py")} | {"errors"}
_ROW: Final = re.compile(r"^\| `(\w+)` \| (.+?) \| (?:`(.+?)` )?\|$", re.MULTILINE)
ROWS: Final = _ROW.findall((ROOT / "docs" / "architecture.md").read_text())


def test_the_page_lists_every_package_once() -> None:
    assert sorted(package for package, _, _ in ROWS) == sorted(PACKAGES)


def test_every_place_to_make_a_change_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("## Where to make a change")[2].partition("\n## ")[0]
    places = re.findall(r"`(\w+(?:/[\w.]+)+)`", table)
    assert places
    assert [place for place in places if not (SOURCE / place).exists()] == []


def test_every_package_has_one_sentence_and_a_module_to_start_with() -> None:
    for package, sentence, start in ROWS:
        assert sentence.endswith(".")
        if start and package != "errors":
            assert (SOURCE / package / start).is_file(), f"{package}: {start}"


def test_the_order_is_one_in_which_to_read() -> None:
    order = [package for package, _, _ in ROWS]
    for number, package in enumerate(order):
        assert imported_packages(package) <= {package, *order[:number]}, package


def imported_packages(package: str) -> set[str]:
    files = [SOURCE / "errors.py"] if package == "errors" else sorted((SOURCE / package).rglob("*.py"))
    pattern = re.compile(r"^\s*(?:from|import) gymnast\.(\w+)", re.MULTILINE)
    return {name for file in files for name in pattern.findall(file.read_text())}


def test_the_picture_shows_every_package() -> None:
    picture = (ROOT / "docs" / "architecture.svg").read_text()
    assert set(re.findall(r'class="name"[^>]*>([^<]+)<', picture)) == PACKAGES
