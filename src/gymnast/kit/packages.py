"""Packages that only some environments need: named, with what to install, before anything is started."""

from __future__ import annotations

from importlib.util import find_spec

from gymnast.errors import UserError


def require_package(module: str, *, extra: str, where: str) -> None:
    """Raises a UserError where a package of one of our extras cannot be imported."""
    if find_spec(module) is None:
        package = module.replace("_", "-")
        raise UserError(f"{where} needs the package '{package}'", next=f"pip install 'gymnast[{extra}]'")
