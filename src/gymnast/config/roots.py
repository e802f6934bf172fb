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
_NEEDS_CHECKOUT = "a component of NeMo Gym needs its checkout: set NEMO_GYM_EXTRA_ROOTS to its folder"
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
        if Path(relative).is_absolute():
            return str(relative)
        searched = "searched " + ", ".join(str(root) for root in self)
        return searched + (f"; {_NEEDS_CHECKOUT}" if self._is_of_unknown_component(relative) else "")

    def _is_of_unknown_component(self, relative: str | Path) -> bool:
        """Whether a path names a component, such as resources_servers/<name>, that no root has."""
        parts = Path(relative).parts
        return len(parts) > 2 and parts[0] in _KINDS and self.find(Path(*parts[:2])) is None

    def suggest(self, relative: str | Path) -> str | None:
        """A did-you-mean text with similar paths, unless the path names a component that is not installed."""
        if self._is_of_unknown_component(relative) and not self._similar_component(relative):
            return None
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

    def _similar_component(self, relative: str | Path) -> bool:
        kind, name = Path(relative).parts[:2]
        known = [path.name for root in self for path in (root / kind).glob("*")]
        return bool(difflib.get_close_matches(name, known, n=1, cutoff=0.75))

    def relative(self, path: Path) -> str:
        for root in self:
            if path.is_relative_to(root):
                return str(path.relative_to(root))
        return str(path)
