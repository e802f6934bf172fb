"""Packages that servers written for NeMo Gym use without listing them, because its own package brings them along.

`gymnast[nemo-gym]` brings the same ones. Where only a part of them is installed, a server's virtual environment gets
those that its code imports.
"""

from __future__ import annotations

import ast
from importlib import metadata
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SURFACE: Final = "gymnast-nemo-gym"
"""The distribution that provides `nemo_gym`."""
_PACKAGES: Final = {"PIL": "pillow", "dotenv": "python-dotenv", "sklearn": "scikit-learn"}
"""Where the names of module and package differ."""
_SERVES: Final = b"run_webserver"
"""What an entry file calls."""


def package_of(module: str) -> str:
    """The package that has a top-level module, if it is one of these."""
    return _PACKAGES.get(module, module)


def installed_requirements(package: str) -> list[Requirement]:
    """What an installed package requires here, without its extras. Empty if it is not installed."""
    try:
        lines = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return []
    requirements = [Requirement(line) for line in lines]
    return [each for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]


def expected_packages() -> dict[str, str]:
    """The requirement of each such package, by its name. Empty without the surface."""
    return {canonicalize_name(each.name): str(each) for each in installed_requirements(SURFACE)}


def find_missing_imports(folder: Path) -> list[str]:
    """The requirements of those that the code of a server imports and that are not installed here."""
    expected = expected_packages()
    if not expected:
        return []
    packages = {canonicalize_name(package_of(module)) for module in _imported_modules(folder)}
    return [line for name, line in sorted(expected.items()) if name in packages and not _is_installed(name)]


def _imported_modules(folder: Path) -> Iterator[str]:
    """The top-level modules that a server imports, in its entry file or in modules of its folder that this one uses."""
    pending = [path for path in folder.glob("*.py") if _SERVES in path.read_bytes()]
    seen = set(pending)
    while pending:
        path = pending.pop()
        for module in _imports(path, folder):
            yield module.partition(".")[0]
            own = [each for each in _own_files(module, folder) if each not in seen]
            seen.update(own)
            pending += own


def _imports(path: Path, folder: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it; each member as well, which may be a module."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # importing it says so
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.parent.relative_to(folder).parts if node.level else ()
            start = [*package[: len(package) - node.level + 1], *([node.module] if node.module else [])]
            yield ".".join(start)
            yield from (".".join([*start, alias.name]) for alias in node.names)


def _own_files(module: str, folder: Path) -> list[Path]:
    """The files of a module of the server's folder, also if imported from the checkout's root."""
    parts = module.split(".")
    if parts[:2] == [folder.parent.name, folder.name]:
        parts = parts[2:]
    base = folder.joinpath(*parts)
    return [path for path in (base.with_suffix(".py"), base / "__init__.py") if parts and path.is_file()]


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
