"""The datasets that a configuration's agents list, as typed values, and their files: located, or downloaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gymnast.data.fetch import FetchRequest, fetch
from gymnast.data.model_registry import ModelRegistry, RegistryFile
from gymnast.errors import DataError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gymnast.config import Config
    from gymnast.data.hub import Hub
    from gymnast.types.json import JsonObject

BENCHMARK: Final = "benchmark"
_SOURCE_KEYS: Final = {
    "gitlab": ("dataset_name", "version", "artifact_fpath"),
    "huggingface": ("repo_id", "artifact_fpath"),
}
SOURCES: Final = ("huggingface", "gitlab")
"""Where a dataset can come from. If a dataset has both, the first is used."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """An entry in an agent's `datasets`."""

    agent: str
    name: str
    type: str
    jsonl_fpath: str
    num_repeats: int = 1
    license: str | None = None
    prompt_config: str | None = None
    prepare_script: str | None = None
    origins: Mapping[str, JsonObject] = field(default_factory=dict)
    """Where it can be downloaded from: `huggingface` and `gitlab`, each with its identifiers."""

    def header(self) -> JsonObject:
        """The keys that open the dataset's metrics file."""
        head = {"name": self.name, "type": self.type, "jsonl_fpath": self.jsonl_fpath}
        if self.type == BENCHMARK:
            script = {"prepare_script": self.prepare_script, "prompt_config": self.prompt_config}
            return {**head, **script, "num_repeats": self.num_repeats}
        only = next(iter(self.origins)) if len(self.origins) == 1 else None  # with two origins, neither is "the" source
        return {
            **head,
            "num_repeats": self.num_repeats,
            "source": {"type": only, **self.origins[only]} if only else None,
            "gitlab_identifier": self.origins.get("gitlab"),
            "huggingface_identifier": self.origins.get("huggingface"),
            "license": self.license,
        }

    def __str__(self) -> str:
        return f"{self.name} ({self.type}, {self.agent}): {self.jsonl_fpath}"


def configured_datasets(config: Config, types: Sequence[str]) -> list[Dataset]:
    """The datasets of these types, grouped by type, then in configuration order."""
    entries = [(instance, entry) for instance in config.instances.values() for entry in instance.datasets]
    chosen = [
        _dataset(str(entry.get("agent") or config.agent_of(instance.name)), entry)
        for kind in types
        for instance, entry in entries
        if entry["type"] == kind
    ]
    if not chosen:
        available = sorted({str(entry["type"]) for _, entry in entries})
        raise NotFoundError(
            f"no agent has a dataset of type {' or '.join(types)}",
            next=f"configured types: {', '.join(available) or 'none'}",
        )
    return chosen


def sibling_path(config: Config, path: Path, suffix: str) -> Path:
    """A file next to a dataset; for a builtin dataset, the same relative path under the working directory."""
    name = path.stem + suffix
    if path.is_relative_to(config.roots.builtin):
        return config.roots.cwd / path.relative_to(config.roots.builtin).with_name(name)
    return path.with_name(name)


def _dataset(agent: str, entry: Mapping[str, Any]) -> Dataset:
    return Dataset(
        agent=agent,
        name=str(entry["name"]),
        type=str(entry["type"]),
        jsonl_fpath=str(entry["jsonl_fpath"]),
        num_repeats=int(entry.get("num_repeats") or 1),
        license=entry.get("license"),
        prompt_config=entry.get("prompt_config"),
        prepare_script=entry.get("prepare_script"),
        origins=_origins(entry),
    )


def _origins(entry: Mapping[str, Any]) -> dict[str, JsonObject]:
    """Reads `source` and the older `*_identifier` keys, which mean the same."""
    source = entry.get("source") or {}
    identifiers = {kind: entry.get(f"{kind}_identifier") for kind in _SOURCE_KEYS}
    if source:
        identifiers[source["type"]] = source
    return {kind: {key: ids.get(key) for key in _SOURCE_KEYS[kind]} for kind, ids in identifiers.items() if ids}


_SPLITS: Final = ("train", "validation")


def locate_files(config: Config, datasets: Sequence[Dataset]) -> list[Path]:
    """The file of each dataset. Raises NotFoundError that lists all missing ones."""
    missing = _find_missing(config, datasets)
    if not missing:
        return [config.roots.require(dataset.jsonl_fpath, f"dataset '{dataset.name}'") for dataset in datasets]
    lines = "".join(f"\n  {dataset}" for dataset in missing)
    hints = [f"run {dataset.prepare_script}" for dataset in missing if dataset.prepare_script]
    if any(dataset.origins for dataset in missing):
        hints.append("download them with --download (+should_download=true)")
    count = f"{len(missing)} configured datasets are" if len(missing) > 1 else "a configured dataset is"
    raise NotFoundError(f"{count} missing{lines}", next="; ".join(hints) or "create the files")


def fetch_missing(
    config: Config,
    datasets: Sequence[Dataset],
    hub: Hub,
    *,
    data_source: str | None = None,
    say: Callable[[str], None],
) -> None:
    """Download missing files into the working directory. If one has no usable source, nothing is downloaded."""
    missing = _find_missing(config, datasets)
    requests = {
        dataset.jsonl_fpath: _request(dataset, config.roots.cwd / dataset.jsonl_fpath, data_source)
        for dataset in missing
    }
    in_registry = any(isinstance(request, RegistryFile) for request in requests.values())
    registry = ModelRegistry.from_values(config.values) if in_registry else None
    for path, request in requests.items():
        say(f"downloading {request}")
        if isinstance(request, FetchRequest):
            fetch(request, hub)
        elif registry is not None:
            registry.download(request, config.roots.cwd / path)


def _find_missing(config: Config, datasets: Sequence[Dataset]) -> list[Dataset]:
    return [dataset for dataset in datasets if config.roots.find(dataset.jsonl_fpath) is None]


def _request(dataset: Dataset, target: Path, data_source: str | None) -> FetchRequest | RegistryFile:
    preferred = data_source or SOURCES[0]
    source = preferred if preferred in dataset.origins else next(iter(dataset.origins), None)
    if source is None:
        hint = f"run {dataset.prepare_script}" if dataset.prepare_script else f"copy its file to {target}"
        raise NotFoundError(f"dataset '{dataset.name}' is missing and has no source to download it from", next=hint)
    if source == "gitlab":
        return RegistryFile(*(str(dataset.origins[source][key]) for key in _SOURCE_KEYS[source]))
    repo_id, artifact = dataset.origins[source]["repo_id"], dataset.origins[source]["artifact_fpath"]
    if artifact is None and dataset.type not in _SPLITS:
        raise DataError(
            f"dataset '{dataset.name}' does not name its file in {repo_id}",
            next="add artifact_fpath to its source",
        )
    return FetchRequest(repo_id, artifact, None if artifact else dataset.type, output=target)
