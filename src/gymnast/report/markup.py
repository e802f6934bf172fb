"""HTML and SVG as text. Every text and every attribute is escaped here and nowhere else.

What already is markup says so by its type, so a plain text can never become a tag. There are no `style` attributes: the
page's security policy forbids them.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final, TypeAlias

from gymnast.report.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable


class Markup(str):
    """Text that has been escaped."""

    __slots__ = ()


Child: TypeAlias = "Markup | str | float | None"
Attribute: TypeAlias = "str | float | bool | None"

_VOID: Final = frozenset({"br", "col", "hr", "input", "link", "meta"})


def tag(name: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element. `class_` is class, `data_run` is data-run, and None leaves an attribute out."""
    opening = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{joined(children)}</{name}>")


def joined(children: Iterable[Child], separator: str = "") -> Markup:
    """Children one after another."""
    return Markup(separator.join(escaped(child) for child in children if child is not None))


def escaped(child: Child) -> Markup:
    """A child as markup."""
    if isinstance(child, Markup):
        return child
    return Markup(html.escape(visible(child if isinstance(child, str) else number(child or 0.0))))


def number(value: float) -> str:
    """A coordinate, as short as it can be said."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{html.escape(visible(value if isinstance(value, str) else number(value)))}"'
