"""Reads YAML files as trees with file and line. Scalars resolve as in OmegaConf: `1e-3` is a number, dates stay texts.
A duplicate key is an error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from gymnast.config.tree import Node, Origin
from gymnast.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pathlib import Path

_FLOAT = re.compile(
    r"""^(?:
     [-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |\.[0-9_]+(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)


class _Loader(yaml.SafeLoader):
    """SafeLoader whose scalars resolve as OmegaConf's do."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:float"}
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def _parse(text: str, name: str) -> Node | None:
    loader = _Loader(text)  # raises for characters that YAML does not allow
    try:
        root = loader.get_single_node()
        return _build(loader, root, name) if root is not None else None
    finally:
        loader.dispose()


def read_yaml(path: Path, shown: str | None = None) -> Node:
    """The file as a tree. An empty file is an empty mapping. Raises ConfigError naming line and column."""
    name = shown or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(f"cannot read the file: {error}", where=name)]) from error
    try:
        tree = _parse(text, name)
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_yaml_problem(error, name)]) from error
    except yaml.YAMLError as error:
        raise ConfigError([Problem(f"not valid YAML: {error}", where=name)]) from error
    except RecursionError as error:
        raise ConfigError([Problem("not valid YAML: nested too deeply", where=name)]) from error
    if tree is None:
        return Node({}, Origin(name, 1))
    if not tree.is_dict:
        raise ConfigError([Problem("a configuration file must be a mapping", where=name)])
    return tree


def _build(loader: _Loader, node: yaml.Node, name: str) -> Node:
    origin = Origin(name, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        _refuse_duplicates(node)
        loader.flatten_mapping(node)
        children: dict[str, Node] = {}
        for key_node, value_node in node.value:
            key: Any = loader.construct_object(key_node, deep=True)
            child = _build(loader, value_node, name)
            if not child.is_dict and not child.is_list:  # the line of a scalar is that of its key
                child = Node(child.value, Origin(name, key_node.start_mark.line + 1))
            children[str(key)] = child
        return Node(children, origin)
    if isinstance(node, yaml.SequenceNode):
        return Node([_build(loader, child, name) for child in node.value], origin)
    return Node(loader.construct_object(node, deep=True), origin)


def _refuse_duplicates(node: yaml.MappingNode) -> None:
    seen: dict[str, int] = {}
    for key_node, _ in node.value:
        if isinstance(key_node, yaml.ScalarNode) and key_node.tag != "tag:yaml.org,2002:merge":
            line = key_node.start_mark.line + 1
            if key_node.value in seen:
                text = f"duplicate key '{key_node.value}' (first on line {seen[key_node.value]})"
                raise yaml.MarkedYAMLError(problem=text, problem_mark=key_node.start_mark)
            seen[key_node.value] = line


def _yaml_problem(error: yaml.MarkedYAMLError, name: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
    text = ", ".join(part for part in (error.context, error.problem) if part)
    return Problem(f"not valid YAML: {text}", where=where)
