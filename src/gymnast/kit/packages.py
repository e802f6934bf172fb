"""Optional packages that some environments need, checked before anything starts."""

from __future__ import annotations

from importlib.util import find_spec

from gymnast.errors import UserError


def require_package(module: str, *, extra: str, where: str) -> None:
    """Raise a UserError if a package of one of our extras is not installed."""
    if find_spec(module) is None:
        package = module.replace("_", "-")
        raise UserError(f"{where} needs the package '{package}'", next=f"pip install 'gymnast[{extra}]'")
