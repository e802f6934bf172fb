"""The code blocks of the pages are what they claim to be: YAML that parses, Python that compiles, JSON objects."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("skills/**/*.md")])
SKILLS: Final = sorted(ROOT.glob("skills/*/SKILL.md"))
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_valid(page: Path) -> None:
    for language, text in _BLOCK.findall(page.read_text()):
        if language == "yaml":
            assert isinstance(yaml.safe_load(text), dict), text
        elif language == "python":
            compile(text, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        elif language == "json":
            json.loads(text if text.startswith("{") else f"{{{text}}}")


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.parent.name)
def test_skills_have_their_front_matter(skill: Path) -> None:
    _, front, _ = skill.read_text().split("---\n", 2)
    matter = yaml.safe_load(front)
    assert matter["name"] == skill.parent.name
    assert len(matter["description"]) > 100
