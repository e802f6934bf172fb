"""A pytest plugin for checkouts of servers: their tests import Gymnast's `nemo_gym`, and the servers by their paths.

The distribution that provides `nemo_gym` registers it. It acts in a folder with `resources_servers/` and the like, or
where another `nemo_gym` would win: `python -m pytest` in a checkout of NeMo Gym puts that checkout's own folder first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gymnast.config.environ import set_default
from gymnast.config.instances import SERVER_KINDS
from gymnast.runtime.surface_import import import_surface

_SHADOWED = pytest.StashKey[Path]()
_RAY_HOOK = ("RAY_RUNTIME_ENV_HOOK", "gymnast.compat.nemo_gym.ray_node.add_worker_setup")
"""Ray calls it where a test starts Ray, so that its workers import what the test does."""


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Import the surface before anything else can import the name."""
    try:
        shadowed = import_surface()
        if _is_checkout(Path.cwd()):
            import nemo_gym  # noqa: F401, PLC0415 - makes the checkout importable

            set_default(*_RAY_HOOK)
        if Path.cwd().parent.name in SERVER_KINDS:
            sys.path.append(str(Path.cwd()))  # `import app`, `import utils`
    except ImportError as error:
        raise pytest.UsageError(str(error)) from error
    if shadowed is not None:
        early_config.stash[_SHADOWED] = shadowed


def pytest_configure(config: pytest.Config) -> None:
    """Take what is named on the command line for a path if there is one.

    A checkout's `--pyargs` would take `tests` in a server's folder for the module of that name: the checkout's own.
    """
    if _is_checkout(Path.cwd()):
        config.args = [_absolute(argument) for argument in config.args]


def _absolute(argument: str) -> str:
    path, *parts = argument.split("::")
    return "::".join([str(Path(path).absolute()), *parts]) if path and Path(path).exists() else argument


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say whose `nemo_gym` is tested if there are two."""
    shadowed = config.stash.get(_SHADOWED, None)
    return f"nemo_gym: Gymnast's; {shadowed} is not used" if shadowed is not None else None


def _is_checkout(folder: Path) -> bool:
    return any((parent / kind).is_dir() for parent in (folder, *folder.parents) for kind in SERVER_KINDS)
