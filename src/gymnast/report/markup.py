"""HTML and SVG as text. Every text and attribute is escaped here and nowhere else.

Only `Markup` is inserted verbatim, so a plain text can never become a tag. There are no `style` attributes: the page's
security policy forbids them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from markupsafe import Markup, escape

from gymnast.report.safe_text import make_visible

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Child", "Markup", "format_coordinate", "join_markup", "tag"]

Child: TypeAlias = "Markup | str | float | None"
Attribute: TypeAlias = "str | float | bool | None"

_VOID: Final = frozenset({"br", "col", "hr", "input", "link", "meta"})


def tag(name: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element. `class_` is class, `data_run` is data-run, and None omits an attribute."""
    opening = join_markup([name, *(_attribute(key, value) for key, value in attributes.items())])
    if name in _VOID:
        return Markup("<{}>").format(opening)
    return Markup("<{}>{}</{}>").format(opening, join_markup(children), name)


def join_markup(children: Iterable[Child], separator: str = "") -> Markup:
    """Join children, escaping those that are plain text."""
    return escape(separator).join(_text(child) for child in children if child is not None)


def format_coordinate(value: float) -> str:
    """A coordinate in as few characters as possible."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _text(value: Markup | str | float) -> str:
    if isinstance(value, Markup):
        return value
    return make_visible(value if isinstance(value, str) else format_coordinate(value))


def _attribute(key: str, value: Attribute) -> Markup | None:
    if value is None or value is False:
        return None
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return Markup(" {}").format(name)
    text = make_visible(str(value)) if isinstance(value, str) else format_coordinate(value)
    return Markup(' {}="{}"').format(name, text)
