"""Errors for names and modules that `nemo_gym` does not have here, and for NVIDIA's package under the same name."""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any, Final

NVIDIA_PACKAGE: Final = "nemo-gym"
"""NVIDIA's distribution, which also provides the package `nemo_gym`."""


def missing_from(module: str, package_file: str | None = None) -> Callable[[str], Any]:
    """A module's `__getattr__` that raises an explanation when a missing name is imported.

    A package passes its `__file__`: Python looks for submodules here before it imports them.
    """
    folder = Path(package_file).parent if package_file else None

    def getattr_(name: str) -> Any:
        is_submodule = folder is not None and ((folder / f"{name}.py").exists() or (folder / name).is_dir())
        if name.startswith("__") or is_submodule:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        raise ImportError(_explain_missing(module, name), name=module)

    return getattr_


def _explain_missing(module: str, name: str) -> str:
    return (
        f"{module} has no '{name}': Gymnast provides the part of `nemo_gym` that environments, agents, models and"
        " trainers import, and this name is not in it (docs/how-to/nemo-gym.md lists all names)"
    )


class _MissingModules:
    """The last entry on a package's search path: a submodule looked up here does not exist."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        raise ModuleNotFoundError(_explain_missing(package, name), name=fullname)


def explain_missing_modules(search_path: list[str]) -> None:
    """Append an entry to a package's `__path__` that explains missing modules. Other packages are not affected."""
    # Absolute, or importlib.invalidate_caches() would drop it.
    end = str(Path(search_path[0]).absolute() / "outside of the surface")
    sys.path_importer_cache[end] = _MissingModules()
    search_path.append(end)


def reject_nvidia_package() -> None:
    """Raise if NVIDIA's package is installed too: their files share a folder, and neither would work."""
    try:
        package = distribution(NVIDIA_PACKAGE)
    except PackageNotFoundError:
        return
    raise ImportError(
        f"{NVIDIA_PACKAGE} {package.version} and gymnast-nemo-gym are both installed, and both provide `nemo_gym`;"
        f" keep one: pip uninstall {NVIDIA_PACKAGE} gymnast-nemo-gym, then pip install the one you want"
    )
