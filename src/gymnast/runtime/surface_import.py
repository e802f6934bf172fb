"""Imports `nemo_gym` from Gymnast's surface where a folder of that name would win: in a checkout of NeMo Gym itself.

Python searches the current folder first in some processes (`python -m`, PYTHONPATH), and such a checkout has a folder
`nemo_gym`. Once the surface is imported, every later import of the name gets it.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

NAME: Final = "nemo_gym"
_MARK: Final = "from gymnast.compat.nemo_gym import"


def import_surface() -> Path | None:
    """Import the surface if a folder `nemo_gym` precedes it on `sys.path`. Returns that folder, None if there is none.

    Changes nothing if the surface is not installed, or `nemo_gym` is already imported.
    """
    first = find_package()
    if NAME in sys.modules or first is None or _is_surface(first):
        return None
    surface = next((spec for spec in map(_find_in, sys.path) if spec is not None and _is_surface(spec)), None)
    if surface is None or surface.loader is None:
        return None
    module = importlib.util.module_from_spec(surface)
    sys.modules[NAME] = module
    try:
        surface.loader.exec_module(module)
    except BaseException:
        del sys.modules[NAME]
        raise
    return Path(first.origin or "").parent


def find_package() -> ModuleSpec | None:
    """What `import nemo_gym` would import."""
    return next((spec for spec in map(_find_in, sys.path) if spec is not None), None)


def _find_in(entry: str) -> ModuleSpec | None:
    spec = PathFinder.find_spec(NAME, [entry])
    return spec if spec is not None and spec.origin is not None else None  # no origin: a folder without code


def _is_surface(spec: ModuleSpec) -> bool:
    try:
        return _MARK in Path(spec.origin or "").read_text()
    except OSError:
        return False
