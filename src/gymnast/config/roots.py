"""The folders in which relative paths are looked up: extra roots, the current folder, then Gymnast's builtins."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from gymnast.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS = ("resources_servers", "responses_api_agents", "responses_api_models", "environments", "benchmarks")
BUILTIN = Path(str(files("gymnast"))) / "builtin"


@dataclass(frozen=True, slots=True)
class Roots:
    """A sequence of folders; the first that has a path wins."""

    extra: tuple[Path, ...]
    cwd: Path
    builtin: Path = BUILTIN

    def __iter__(self) -> Iterator[Path]:
        yield from self.extra
        yield self.cwd
        yield self.builtin

    def find(self, relative: str | Path) -> Path | None:
        """The first match, or None. An absolute path is its own match."""
        path = Path(relative).expanduser()
        if path.is_absolute():
            return path if path.exists() else None
        return next((root / path for root in self if (root / path).exists()), None)

    def require(self, relative: str | Path, what: str) -> Path:
        """The first match, or an error that lists the searched folders and similar paths."""
        path = self.find(relative)
        if path is None:
            where, hint = self.describe_search(relative), self.suggest(relative)
            raise NotFoundError(f"{what} '{relative}' does not exist", where=where, next=hint)
        return path

    def describe_search(self, relative: str | Path) -> str:
        """Where a path was searched for."""
        return str(relative) if Path(relative).is_absolute() else "searched " + ", ".join(str(root) for root in self)

    def suggest(self, relative: str | Path) -> str | None:
        """A did-you-mean text with similar paths."""
        wanted = Path(relative)
        suffix = wanted.suffix or ".yaml"
        known = {
            str(path.relative_to(root))
            for root in self
            for kind in _KINDS
            for path in (root / kind).glob(f"**/*{suffix}")
            if wanted.parent.name != "configs" or path.parent.name == "configs"
        }
        known |= {str(wanted.parent / path.name) for path in (self.cwd / wanted).parent.glob("*") if path.is_file()}
        matches = difflib.get_close_matches(str(wanted), sorted(known), n=2, cutoff=0.7)
        return "did you mean " + " or ".join(f"'{match}'" for match in matches) + "?" if matches else None

    def relative(self, path: Path) -> str:
        """A path relative to its root, for messages."""
        for root in self:
            if path.is_relative_to(root):
                return str(path.relative_to(root))
        return str(path)
