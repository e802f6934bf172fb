"""The files of the web application, compressed once. Only files of the package's `web` folder, by their names."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Final, NamedTuple

WEB: Final = Path(__file__).parent / "web"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*\.[a-z]{2,5}")


class WebFile(NamedTuple):
    """A file as it is sent."""

    content_type: str
    data: bytes
    compressed: bytes


class WebFiles:
    """Reads files on demand and keeps them."""

    def __init__(self, folder: Path = WEB) -> None:
        self._folder = folder
        self._files: dict[str, tuple[int, WebFile]] = {}

    def get(self, name: str) -> WebFile | None:
        """A file by its name below the folder; None if there is none."""
        path = self._folder / name
        if _NAME.fullmatch(name) is None or path.suffix not in _TYPES:
            return None
        try:
            changed = path.stat().st_mtime_ns
            known = self._files.get(name)
            if known is None or known[0] != changed:
                data = path.read_bytes()
                known = (changed, WebFile(_TYPES[path.suffix], data, gzip.compress(data, 9, mtime=0)))
                self._files[name] = known
        except OSError:
            return None
        return known[1]

    def names(self) -> list[str]:
        """All files, for an export."""
        paths = (path for path in sorted(self._folder.rglob("*")) if path.is_file())
        return [name for path in paths if self.get(name := path.relative_to(self._folder).as_posix()) is not None]
