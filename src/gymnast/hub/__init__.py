"""The old name of `gymnast.builtin`: `import gymnast.hub.x` gives the module `gymnast.builtin.x` itself, no copy."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

warnings.warn("gymnast.hub is now gymnast.builtin", DeprecationWarning, stacklevel=2)


def _new_name(name: str) -> str:
    return name.replace(__name__, "gymnast.builtin", 1)


class _Forward:
    """A finder and loader that answers imports under the old name with the modules under the new one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{__name__}.") or (new := importlib.util.find_spec(_new_name(name))) is None:
            return None
        return importlib.util.spec_from_loader(name, self, origin=new.origin)  # type: ignore[arg-type]  # duck-typed

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the import system: `exec_module` replaces the module."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(_new_name(module.__name__))

    def get_code(self, name: str) -> CodeType | None:
        """The code for `python -m gymnast.hub.…`."""
        spec = importlib.util.find_spec(_new_name(name))
        return spec.loader.get_code(_new_name(name)) if spec and spec.loader else None  # type: ignore[attr-defined]


sys.meta_path.insert(0, _Forward())  # before the path finder, which would load a second copy
