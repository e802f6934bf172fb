"""Copies of packages that only root can read, for the user that root's programs run as.

An installation with a umask such as 077 belongs to root alone, so that `nobody` would find empty packages.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_READ: Final = 0o4
_READ_AND_ENTER: Final = 0o5


@contextmanager
def readable_copies(folders: Sequence[Path]) -> Iterator[tuple[Path, ...]]:
    """The same folders, or copies of the same names that exist until the end and that every user can read."""
    private = [folder for folder in folders if os.geteuid() == 0 and not _is_readable_inside(folder)]
    if not private:
        yield tuple(folders)
        return
    with tempfile.TemporaryDirectory(prefix="gymnast-packages-") as scratch:
        copies = {folder: Path(scratch, folder.name) for folder in private}
        for folder, copy in copies.items():
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__"))
            _open_to_all(copy)
        yield tuple(copies.get(folder, folder) for folder in folders)


def _is_readable_inside(folder: Path) -> bool:
    """Whether every user that reaches the folder can read it and what is directly in it."""
    return folder.stat().st_mode & _READ_AND_ENTER == _READ_AND_ENTER and all(
        child.stat().st_mode & _READ for child in folder.iterdir()
    )


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (_READ_AND_ENTER if path.is_dir() else _READ))
