"""The datasets of a configuration as one file of tasks, in which each row names its agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from gymnast.config.datasets import TYPES
from gymnast.errors import DataError, NotFoundError, suggest
from gymnast.rollouts.prompt import read_template
from gymnast.store.atomic import atomic_output
from gymnast.store.lines import numbered_lines
from gymnast.types.task import AGENT_REF

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.config import Config, Instance


def write_split(config: Config, split: str, target: Path) -> Path:
    """Write the rows of every dataset of this type, in the order of the configuration, repeated as it says."""
    if split not in TYPES:
        raise NotFoundError(f"unknown split '{split}'", next=suggest(split, TYPES))
    chosen = [
        (instance, dataset)
        for instance in config.instances.values()
        for dataset in instance.datasets
        if dataset["type"] == split
    ]
    if not chosen:
        known = ", ".join(configured_splits(config)) or "none"
        raise NotFoundError(f"no dataset of type '{split}' is configured", next=f"available: {known}")
    with atomic_output(target) as out:
        for instance, dataset in chosen:
            for line in _rows(config, instance, dataset):
                out.write(line)
    return target


def configured_splits(config: Config) -> list[str]:
    """The splits that the configuration has datasets of."""
    return sorted({str(dataset["type"]) for instance in config.instances.values() for dataset in instance.datasets})


def _rows(config: Config, instance: Instance, dataset: Mapping[str, Any]) -> Iterator[bytes]:
    path, template = _file(config, dataset), dataset.get("prompt_config")
    agent = str(dataset.get("agent") or config.agent_of(instance.name))
    prompt = read_template(config.roots.require(template, "prompt_config")) if template else None
    for number, line in numbered_lines(path):
        try:
            row = orjson.loads(line)
            row = prompt.apply(row) if prompt is not None else row
        except ValueError as error:
            raise DataError(f"bad row in dataset '{dataset['name']}': {error}", where=f"{path} line {number}") from None
        routed = {**row, AGENT_REF: {"type": "responses_api_agents", "name": agent}}
        for _ in range(int(dataset.get("num_repeats") or 1)):
            yield orjson.dumps(routed) + b"\n"


def _file(config: Config, dataset: Mapping[str, Any]) -> Path:
    path = config.roots.find(dataset["jsonl_fpath"])
    if path is not None:
        return path
    origin = dataset.get("source") or dataset.get("huggingface_identifier") or dataset.get("gitlab_identifier")
    script = dataset.get("prepare_script")
    raise NotFoundError(
        f"dataset '{dataset['name']}' does not exist: {dataset['jsonl_fpath']}",
        where=config.roots.describe_search(dataset["jsonl_fpath"]),
        next=f"run {script}" if script else f"fetch it from {origin}" if origin else None,
    )
