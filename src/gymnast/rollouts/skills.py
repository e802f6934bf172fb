"""The skills folder of a run: its digest and contents, stamped onto every row as `skills_ref`."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import yaml

from gymnast.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.types.json import JsonObject


def skills_ref(folder: Path, shown: str) -> JsonObject:
    """`{path, hash, skills}` of a folder of skills (each a folder with SKILL.md)."""
    if not folder.is_dir():
        raise DataError(f"the skills folder '{shown}' does not exist", where=str(folder))
    digest = hashlib.sha256()
    for path in sorted(file for file in folder.rglob("*") if file.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    skills = [_describe(path) for path in sorted(folder.glob("*/SKILL.md"))]
    return {"path": shown, "hash": digest.hexdigest()[:12], "skills": skills}


def _describe(path: Path) -> JsonObject:
    """Name, description and version from the front matter."""
    text = path.read_text(encoding="utf-8", errors="replace")
    front: Any = {}
    if text.startswith("---"):
        try:
            front = yaml.safe_load(text.split("---", 2)[1])
        except (yaml.YAMLError, IndexError):
            front = {}
    front = front if isinstance(front, dict) else {}
    return {
        "name": str(front.get("name") or path.parent.name),
        "description": front.get("description"),
        "version": front.get("version"),
    }
