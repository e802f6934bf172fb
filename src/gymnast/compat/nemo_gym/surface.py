"""What the import surface says of names and modules that it does not have, and of another package under its name."""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any, Final

OTHER: Final = "nemo-gym"
"""NVIDIA's distribution, which owns the name `nemo_gym` where it is installed."""


def missing_from(module: str, package_file: str | None = None) -> Callable[[str], Any]:
    """A module's `__getattr__`: a name outside of the surface fails with words, at the import that asks for it.

    A package gives its `__file__`: of its submodules Python asks here before it imports them.
    """
    folder = Path(package_file).parent if package_file else None

    def getattr_(name: str) -> Any:
        is_submodule = folder is not None and ((folder / f"{name}.py").exists() or (folder / name).is_dir())
        if name.startswith("__") or is_submodule:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        raise ImportError(_said(module, name), name=module)

    return getattr_


def _said(module: str, name: str) -> str:
    return (
        f"{module} has no '{name}' here: Gymnast provides the part of `nemo_gym` that environments, agents, models"
        " and trainers import, and this name is outside of it (docs/how-to/nemo-gym.md lists what there is)"
    )


class _Outside:
    """The last place where a package's submodules are looked for. Who comes here asks for one that there is not."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        raise ModuleNotFoundError(_said(package, name), name=fullname)


def explain_missing_modules(search_path: list[str]) -> None:
    """Give a package's `__path__` an end that says what is missing. No other package's imports come by there."""
    # Absolute, or importlib.invalidate_caches() would forget it.
    end = str(Path(search_path[0]).absolute() / "outside of the surface")
    sys.path_importer_cache[end] = _Outside()
    search_path.append(end)


def refuse_the_other() -> None:
    """Raise where NVIDIA's package is installed too: files of both in one folder work for neither."""
    try:
        found = distribution(OTHER)
    except PackageNotFoundError:
        return
    raise ImportError(
        f"{OTHER} {found.version} and gymnast-nemo-gym are both installed, and both own the name `nemo_gym`;"
        f" keep one: pip uninstall {OTHER} gymnast-nemo-gym, then pip install the one that you want"
    )
