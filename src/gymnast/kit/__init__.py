"""For authors of environments, agents and models: everything they import from Gymnast.

The names are those of the stub next to this module, `__init__.pyi`. Each is loaded when it is first used, so that
importing this package is cheap. The built-in servers import nothing else.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_STUB: Final = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOMES: Final = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", _STUB, re.MULTILINE)}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one list of names is enough


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gymnast.kit' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
