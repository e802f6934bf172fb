"""What is committed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_names_a_machine_or_a_registry() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in filter(None, listed):
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".yaml", ".txt", ""} and path.is_file() and path.name != "LICENSE":
            text = path.read_text(errors="ignore")
            assert not re.search(r"(?<![\w.~-])/(?:root|work|home/\w+)/\S+", text), name
            assert not re.search(r"https?://[^\s/]*(?:pypi|pythonhosted|registry)", text), name
