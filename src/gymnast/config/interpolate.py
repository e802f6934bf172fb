"""`${…}` resolved by OmegaConf. Reports every value that cannot be resolved, with the key that holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.config import tree
from gymnast.errors import Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.config.tree import Node

MISSING = "???"


def resolved(root: Node, keys: Iterable[str], problems: list[Problem]) -> dict[str, Any]:
    """The plain values of the top-level `keys`, interpolations resolved against the whole tree."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - 0.1 s that a command without a config does not pay

    config = OmegaConf.create(tree.plain(root))
    found: dict[str, Any] = {}
    for key in keys:
        try:
            found[key] = _resolve(config, key, (key,), root, problems)
        except _Unresolved:
            continue
    return found


def missing_values(root: Node) -> list[Problem]:
    """One problem for each mandatory value (`???`) that nobody gave."""
    return [
        Problem(
            f"'{tree.show_path(path)}' must be given a value",
            where=str(node.origin),
            next=f"++{tree.show_path(path)}=VALUE, or set it in a config file or env.yaml",
        )
        for path, node in tree.walk(root)
        if node.value == MISSING
    ]


class _Unresolved(Exception):  # noqa: N818 - control flow inside this module
    pass


def _resolve(container: Any, key: Any, path: tree.Path, root: Node, problems: list[Problem]) -> Any:
    from omegaconf import DictConfig, ListConfig  # noqa: PLC0415
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415

    node = tree.select(root, path)
    if node is not None and node.value == MISSING:
        return MISSING  # reported once, by missing_values
    try:
        value = container[key]
    except (OmegaConfBaseException, ValueError) as error:
        problems.append(_problem(node, path, root, error))
        raise _Unresolved from error
    if isinstance(value, DictConfig):
        return {
            str(child): kept for child in value for kept in _kept(value, child, (*path, str(child)), root, problems)
        }
    if isinstance(value, ListConfig):
        return [kept for index in range(len(value)) for kept in _kept(value, index, (*path, index), root, problems)]
    return value


def _kept(container: Any, key: Any, path: tree.Path, root: Node, problems: list[Problem]) -> list[Any]:
    try:
        return [_resolve(container, key, path, root, problems)]
    except _Unresolved:
        return []


def _problem(node: Node | None, path: tree.Path, root: Node, error: Exception) -> Problem:
    text = str(node.value) if node is not None else ""
    wanted = text.strip().removeprefix("${").removesuffix("}")
    if wanted.startswith("oc.env:"):
        name = wanted.removeprefix("oc.env:").split(",")[0]
        return Problem(
            f"'{tree.show_path(path)}' reads the environment variable {name}, which is not set",
            where=str(node.origin) if node else None,
            next=f"export {name}=…, or give a default: ${{oc.env:{name},default}}",
        )
    known = {tree.show_path(found) for found, _ in tree.walk(root) if 0 < len(found) <= 3}
    first = str(error).strip().splitlines()[0]
    return Problem(
        f"'{tree.show_path(path)}' refers to {text or 'a value'} which cannot be resolved ({first})",
        where=str(node.origin) if node else None,
        next=_next(wanted, known),
    )


def _next(wanted: str, known: set[str]) -> str | None:
    if not wanted.replace("_", "").replace(".", "").isalnum():
        return None
    hint = suggest(wanted, known)
    hint = hint if hint and hint.startswith("did you mean") else None
    return f"{hint} or set ++{wanted}=VALUE" if hint else f"set ++{wanted}=VALUE, or put it into env.yaml"
