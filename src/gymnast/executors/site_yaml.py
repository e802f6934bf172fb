"""Cluster files as plain mappings, with the keys of those written for NeMo Skills translated to ours.

Every scalar is text: YAML reads `time: 12:00:00` as 43200, which Slurm would take for minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from gymnast.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_IGNORED: Final = ("required_env_vars", "job_name_prefix", "skip_hf_home_check", "disable_gpus_per_node")
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


def translate_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under our keys. Where both spellings are given, ours wins."""
    settings = {key: value for key, value in values.items() if key not in _IGNORED}
    tunnel = settings.pop("ssh_tunnel", None)
    if isinstance(tunnel, dict) and tunnel.get("host"):
        user = f"{tunnel['user']}@" if tunnel.get("user") else ""
        settings.setdefault("host", f"{user}{tunnel['host']}")
        if tunnel.get("identity"):
            settings.setdefault("ssh_options", ["-i", tunnel["identity"]])
    variables = settings.pop("env_vars", None)
    if isinstance(variables, list):  # sbatch itself passes on a bare name
        pairs = (str(variable).partition("=") for variable in variables if "=" in str(variable))
        settings["environment"] = {name: value for name, _, value in pairs} | (settings.get("environment") or {})
    timeouts = settings.pop("timeouts", None)
    if isinstance(timeouts, dict) and settings.get("partition") in timeouts:
        settings.setdefault("time", timeouts[settings["partition"]])
    cpu_partition = settings.pop("cpu_partition", None)
    if cpu_partition:
        settings["merge"] = {"partition": cpu_partition} | (settings.get("merge") or {})
    if settings.get("executor") == "none":
        settings["executor"] = "local"
    if settings.get("containers") and settings.get("executor", "slurm") == "slurm":
        settings.setdefault("runtime", "pyxis")
    return settings
