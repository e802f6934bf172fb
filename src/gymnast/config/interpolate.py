"""Resolves `${…}` with OmegaConf. Reports every value that cannot be resolved, with its key."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from gymnast.config import tree
from gymnast.errors import Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.config.keyring import Keyring
    from gymnast.config.tree import Node

_POLICY_OPTIONS: Final = {
    "policy_model_name": "the model's name with -m NAME",
    "policy_base_url": "the endpoint with --model-url URL",
    "policy_api_key": "a key with --model-key-name NAME",
}

MISSING = "???"


def resolve_keys(
    root: Node, keys: Iterable[str], problems: list[Problem], keyring: Keyring | None = None
) -> dict[str, Any]:
    """The plain values of the top-level `keys`, with interpolations resolved against the whole tree."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - 0.1 s that a command without a config does not pay

    values_as_written = tree.plain(root)
    config = OmegaConf.create(values_as_written if keyring is None else keyring.substitute(values_as_written))
    values: dict[str, Any] = {}
    for key in keys:
        try:
            values[key] = _resolve(config, key, (key,), root, problems)
        except _UnresolvedError:
            continue
    return values


def missing_values(root: Node) -> list[Problem]:
    """One problem for each mandatory value (`???`) that is not set."""
    return [
        Problem(
            f"'{tree.show_path(path)}' needs a value",
            where=str(node.origin),
            next=f"set ++{tree.show_path(path)}=VALUE, or set it in a config file or env.yaml",
        )
        for path, node in tree.walk(root)
        if node.value == MISSING
    ]


class _UnresolvedError(Exception):
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
        raise _UnresolvedError from error
    if isinstance(value, DictConfig):
        return {
            str(child): item
            for child in value
            for item in _resolve_item(value, child, (*path, str(child)), root, problems)
        }
    if isinstance(value, ListConfig):
        return [
            item for index in range(len(value)) for item in _resolve_item(value, index, (*path, index), root, problems)
        ]
    return value


def _resolve_item(container: Any, key: Any, path: tree.Path, root: Node, problems: list[Problem]) -> list[Any]:
    """The value in a list, or an empty list if it cannot be resolved."""
    try:
        return [_resolve(container, key, path, root, problems)]
    except _UnresolvedError:
        return []


def _problem(node: Node | None, path: tree.Path, root: Node, error: Exception) -> Problem:
    path, node = _follow(path, node, root)
    text = str(node.value) if node is not None else ""
    reference = _reference(text)
    if reference.startswith("oc.env:"):
        name = reference.removeprefix("oc.env:").split(",")[0]
        return Problem(
            f"'{tree.show_path(path)}' reads the environment variable {name}, which is not set",
            where=str(node.origin) if node else None,
            next=f"export {name}=…, or add a default: ${{oc.env:{name},default}}",
        )
    known = {tree.show_path(other) for other, _ in tree.walk(root) if 0 < len(other) <= 3}
    first = str(error).strip().splitlines()[0]
    return Problem(
        f"'{tree.show_path(path)}' refers to {text or 'a value'}, which cannot be resolved ({first})",
        where=str(node.origin) if node else None,
        next=_next_step(reference, known),
    )


def _follow(path: tree.Path, node: Node | None, root: Node) -> tuple[tree.Path, Node | None]:
    """The value at the end of a chain of references: the one to correct."""
    for _ in range(8):
        target = _reference(str(node.value)) if node is not None else ""
        if not target.replace("_", "").replace(".", "").isalnum():
            break
        next_path = tree.parse_path(target)
        next_node = tree.select(root, next_path)
        if next_node is None or not isinstance(next_node.value, str) or "${" not in next_node.value:
            break
        path, node = next_path, next_node
    return path, node


def _reference(text: str) -> str:
    return text.strip().removeprefix("${").removesuffix("}")


def _next_step(reference: str, known: set[str]) -> str | None:
    if not reference.replace("_", "").replace(".", "").isalnum():
        return None
    if reference in _POLICY_OPTIONS and not get_close_matches(reference, known, 1, cutoff=0.9):
        return f"pass {_POLICY_OPTIONS[reference]}, or set ++{reference}=VALUE"
    hint = suggest(reference, known)
    hint = hint if hint and hint.startswith("did you mean") else None
    return f"{hint} or set ++{reference}=VALUE" if hint else f"set ++{reference}=VALUE, or add it to env.yaml"
