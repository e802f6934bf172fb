"""Where relative paths are looked up: extra roots, the current folder, then the hub that ships with Gymnast."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from gymnast.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

HUB = Path(str(files("gymnast"))) / "hub"


@dataclass(frozen=True, slots=True)
class Roots:
    """An ordered list of folders; the first that has the path wins."""

    extra: tuple[Path, ...]
    cwd: Path
    hub: Path = HUB

    def __iter__(self) -> Iterator[Path]:
        yield from self.extra
        yield self.cwd
        yield self.hub

    def find(self, relative: str | Path) -> Path | None:
        """The first existing match, or None. An absolute path is itself."""
        path = Path(relative).expanduser()
        if path.is_absolute():
            return path if path.exists() else None
        return next((root / path for root in self if (root / path).exists()), None)

    def require(self, relative: str | Path, what: str) -> Path:
        """The first existing match, or an error that lists where we looked and what is close."""
        found = self.find(relative)
        if found is None:
            raise NotFoundError(
                f"{what} '{relative}' does not exist", where=self.searched(relative), next=self.close(relative)
            )
        return found

    def searched(self, relative: str | Path) -> str:
        """Where a path would have been found."""
        return (
            "searched " + ", ".join(str(root) for root in self) if not Path(relative).is_absolute() else str(relative)
        )

    def close(self, relative: str | Path) -> str | None:
        """A path that looks like the one asked for."""
        suffix = Path(relative).suffix or ".yaml"
        known = {
            str(path.relative_to(root))
            for root in self
            for kind in (
                "resources_servers",
                "responses_api_agents",
                "responses_api_models",
                "environments",
                "benchmarks",
            )
            for path in (root / kind).glob(f"**/*{suffix}")
        }
        matches = difflib.get_close_matches(str(relative), sorted(known), n=2, cutoff=0.7)
        return "did you mean " + " or ".join(f"'{match}'" for match in matches) + "?" if matches else None

    def shown(self, path: Path) -> str:
        """A path relative to the root it was found in, for messages."""
        for root in self:
            if path.is_relative_to(root):
                return str(path.relative_to(root))
        return str(path)
