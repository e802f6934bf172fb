"""The part of the package `nemo_gym` that environments, agents, models and trainers import, built on Gymnast.

A separate distribution provides the name (`distributions/nemo-gym-surface`); here it can be typed and tested. Folders
depend on the caller: `PARENT_DIR` is the checkout of the importing file, or the current folder.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from gymnast import __version__
from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.config import read_environ
from gymnast.config.instances import SERVER_KINDS
from gymnast.config.roots import BUILTIN

if TYPE_CHECKING:
    PARENT_DIR: Path
    ROOT_DIR: Path
    WORKING_DIR: Path
    CACHE_DIR: Path
    RESULTS_DIR: Path

__all__ = ["CACHE_DIR", "PARENT_DIR", "RESULTS_DIR", "ROOT_DIR", "WORKING_DIR", "__version__"]
_missing = missing_from("nemo_gym", __file__)
_LAYOUT = frozenset({*SERVER_KINDS, "environments", "benchmarks"})


def checkout_of(file: str | None) -> Path | None:
    """The checkout that a file belongs to: the parent of its folder `resources_servers`, `responses_api_agents`, …"""
    path = Path(file).resolve() if file else None
    return next((folder.parent for folder in path.parents if folder.name in _LAYOUT), None) if path else None


def make_checkout_importable() -> None:
    """Make `import resources_servers.…` work for checkouts: of the importing file, the current folder, the extra roots.

    Called by the distribution that provides the name `nemo_gym`, never by Gymnast itself.
    """
    files = [frame.f_globals.get("__file__") for frame in _frames()]
    parents = (Path.cwd(), *Path.cwd().parents)
    cwd = next((folder for folder in parents if any((folder / kind).is_dir() for kind in SERVER_KINDS)), None)
    for root in (*(checkout_of(file) for file in files), cwd, *read_environ().extra_roots):
        if root is not None and root != BUILTIN and str(root) not in sys.path:
            sys.path.append(str(root))


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way to find the importing file
    while frame is not None:
        yield frame
        frame = frame.f_back


def __getattr__(name: str) -> Any:
    match name:
        case "PARENT_DIR":
            # Depends on the caller: a process may host servers of several checkouts.
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
