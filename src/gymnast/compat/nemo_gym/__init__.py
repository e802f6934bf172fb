"""The part of the Python package `nemo_gym` that environments, agents, models and trainers import, on our own parts.

A distribution of its own gives it the name (`distributions/nemo-gym-surface`); here it can be typed and tested. Folders
are those of whoever asks: `PARENT_DIR` is the checkout in which the importing file lives, or the current folder.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from gymnast import __version__
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config import read_environ
from gymnast.config.instances import KINDS
from gymnast.config.roots import HUB

if TYPE_CHECKING:
    PARENT_DIR: Path
    ROOT_DIR: Path
    WORKING_DIR: Path
    CACHE_DIR: Path
    RESULTS_DIR: Path

__all__ = ["CACHE_DIR", "PARENT_DIR", "RESULTS_DIR", "ROOT_DIR", "WORKING_DIR", "__version__"]
_missing = missing_from("nemo_gym", __file__)
_LAYOUT = frozenset({*KINDS, "environments", "benchmarks"})


def checkout_of(file: str | None) -> Path | None:
    """The checkout that a file belongs to: what holds its folder `resources_servers`, `responses_api_agents`, …"""
    path = Path(file).resolve() if file else None
    return next((folder.parent for folder in path.parents if folder.name in _LAYOUT), None) if path else None


def make_checkout_importable() -> None:
    """Let `import resources_servers.…` work for code of a checkout: the importing file's, the current folder's, and
    the extra roots'. Called by the package that carries the name, never by ours."""
    files = [frame.f_globals.get("__file__") for frame in _frames()]
    cwd = [folder for folder in (Path.cwd(), *Path.cwd().parents) if any((folder / kind).is_dir() for kind in KINDS)]
    found = [*(checkout_of(file) for file in files), *cwd[:1], *read_environ().extra_roots]
    for root in found:
        if root is not None and root != HUB and str(root) not in sys.path:
            sys.path.append(str(root))


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to learn who imports
    while frame is not None:
        yield frame
        frame = frame.f_back


def __getattr__(name: str) -> Any:
    match name:
        case "PARENT_DIR":
            # Who asks decides: a process may host servers of several checkouts.
            return checkout_of(sys._getframe(1).f_globals.get("__file__")) or Path.cwd()  # noqa: SLF001 - see above
        case "ROOT_DIR":
            return Path(__file__).parent
        case "WORKING_DIR":
            return Path.cwd()
        case "CACHE_DIR":
            return Path.cwd() / "cache"
        case "RESULTS_DIR":
            return Path.cwd() / "results"
    return _missing(name)
