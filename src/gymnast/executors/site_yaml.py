"""YAML with every scalar as text: YAML reads `time: 12:00:00` as 43200, which Slurm would take for minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from gymnast.errors import ConfigError, Problem

if TYPE_CHECKING:
    from pathlib import Path

Lines = dict[tuple[str, ...], int]


def read_plain_yaml(path: Path) -> tuple[dict[str, Any], Lines]:
    """Read a file: its mapping with text for scalars, and the line of each key. Duplicate keys are an error."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(f"cannot read the cluster file: {error}", where=str(path))]) from error
    except yaml.YAMLError as error:
        raise ConfigError([Problem(f"not valid YAML: {error}", where=str(path))]) from error
    lines: Lines = {}
    values = {} if root is None else _convert(root, (), lines, str(path))
    if not isinstance(values, dict):
        raise ConfigError([Problem("a cluster file must be a mapping of keys to values", where=str(path))])
    return values, lines


def _convert(node: yaml.Node, parents: tuple[str, ...], lines: Lines, where: str) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag.endswith(":null") else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_convert(item, (*parents, str(number)), lines, where) for number, item in enumerate(node.value)]
    values: dict[str, Any] = {}
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in values:
            raise ConfigError([Problem(f"duplicate key '{name}'", where=f"{where} line {line}")])
        lines[(*parents, name)] = line
        values[name] = _convert(value, (*parents, name), lines, where)
    return values
