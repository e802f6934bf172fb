"""YAML with every scalar as text: YAML itself reads `time: 12:00:00` as 43200, which Slurm would take for minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from gymnast.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pathlib import Path

Lines = dict[tuple[str, ...], int]


def read_plain_yaml(path: Path) -> tuple[dict[str, Any], Lines]:
    """The file's mapping with text for scalars, and the line of each key. A key written twice is an error."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(f"cannot read the cluster's file: {error}", where=str(path))]) from error
    except yaml.YAMLError as error:
        raise ConfigError([Problem(f"not valid YAML: {error}", where=str(path))]) from error
    lines: Lines = {}
    found = {} if root is None else _plain(root, (), lines, str(path))
    if not isinstance(found, dict):
        raise ConfigError([Problem("a cluster's file is a mapping of keys to values", where=str(path))])
    return found, lines


def _plain(node: yaml.Node, above: tuple[str, ...], lines: Lines, where: str) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag.endswith(":null") else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(one, (*above, str(number)), lines, where) for number, one in enumerate(node.value)]
    found: dict[str, Any] = {}
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in found:
            raise ConfigError([Problem(f"the key '{name}' is written twice", where=f"{where} line {line}")])
        lines[(*above, name)] = line
        found[name] = _plain(value, (*above, name), lines, where)
    return found
