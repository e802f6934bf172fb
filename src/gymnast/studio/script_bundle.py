"""The web application's modules as one classic script: browsers do not load modules from files on disk.

Understands what the modules use, and refuses anything else: named imports of each other, and exported declarations.
"""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_IMPORT: Final = re.compile(r'^import \{([\w$,\s]*)\} from "\./(\w+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)
_LEFT: Final = re.compile(r"^\s*(?:import|export)\b.*", re.MULTILINE)


def bundle_modules(modules: Mapping[str, str]) -> str:
    """The modules in the order in which they need each other, each in a function of its own."""
    needs = {name: {match[2] for match in _IMPORT.finditer(text)} for name, text in modules.items()}
    ordered = [_wrap(name, modules[name]) for name in TopologicalSorter(needs).static_order()]
    return "\n".join(('"use strict";', "const studioModules = {};", *ordered))


def _wrap(name: str, text: str) -> str:
    imports = "".join(
        f'const {{{", ".join(match[1].split(",")).strip()}}} = studioModules["{match[2]}"];\n'
        for match in _IMPORT.finditer(text)
    )
    body = _EXPORT.sub("", _IMPORT.sub("", text))
    left = _LEFT.search(body)
    if left is not None:
        raise ValueError(f"{name}: cannot bundle '{left[0].strip()}'")
    exports = ", ".join(match[1] for match in _EXPORT.finditer(text))
    return f'studioModules["{name}"] = (() => {{\n{imports}{body}\nreturn {{ {exports} }};\n}})();'
