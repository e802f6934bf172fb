"""Deprecated: the sandbox is now `gymnast.sandbox`."""

import warnings
from typing import Any

from gymnast import sandbox

_RENAMED = {"Calls": "FunctionCalls"}


def __getattr__(name: str) -> Any:
    value = getattr(sandbox, _RENAMED.get(name, name))
    warnings.warn("gymnast.kit.sandbox is deprecated: import from gymnast.sandbox", DeprecationWarning, stacklevel=2)
    return value
