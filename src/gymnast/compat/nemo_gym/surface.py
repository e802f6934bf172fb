"""What the import surface says of names that it does not have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def missing_from(module: str, package_file: str | None = None) -> Callable[[str], Any]:
    """A module's `__getattr__`: a name outside of the surface fails with words, at the import that asks for it.

    A package gives its `__file__`: of its submodules Python asks here before it imports them.
    """
    folder = Path(package_file).parent if package_file else None

    def getattr_(name: str) -> Any:
        is_submodule = folder is not None and ((folder / f"{name}.py").exists() or (folder / name).is_dir())
        if name.startswith("__") or is_submodule:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        raise ImportError(
            f"{module} has no '{name}' here: Gymnast provides the part of `nemo_gym` that environments, agents, models"
            " and trainers import, and this name is outside of it (docs/how-to/nemo-gym.md lists what there is)",
            name=module,
        )

    return getattr_
