"""The files of configured datasets: locates them, reports all missing ones in one error, or downloads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.data.datasets import SOURCES
from gymnast.data.fetch import FetchRequest, fetch
from gymnast.errors import DataError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gymnast.config import Config
    from gymnast.data.datasets import Dataset
    from gymnast.data.hub import Hub

_SPLITS: Final = ("train", "validation")


def locate_files(config: Config, datasets: Sequence[Dataset]) -> list[Path]:
    """The file of each dataset. Raises NotFoundError that lists all missing ones."""
    missing = _missing(config, datasets)
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
    requests = {
        dataset.jsonl_fpath: _request(dataset, config.roots.cwd / dataset.jsonl_fpath, data_source)
        for dataset in _missing(config, datasets)
    }
    for request in requests.values():
        say(f"downloading {request}")
        fetch(request, hub)


def _missing(config: Config, datasets: Sequence[Dataset]) -> list[Dataset]:
    return [dataset for dataset in datasets if config.roots.find(dataset.jsonl_fpath) is None]


def _request(dataset: Dataset, target: Path, data_source: str | None) -> FetchRequest:
    preferred = data_source or SOURCES[0]
    source = preferred if preferred in dataset.origins else next(iter(dataset.origins), None)
    if source == "gitlab":
        raise DataError(
            f"dataset '{dataset.name}' is in a GitLab model registry, which is not supported",
            next=f"copy its file to {target}",
        )
    if source is None:
        hint = f"run {dataset.prepare_script}" if dataset.prepare_script else f"copy its file to {target}"
        raise NotFoundError(f"dataset '{dataset.name}' is missing and has no source to download it from", next=hint)
    repo_id, artifact = dataset.origins[source]["repo_id"], dataset.origins[source]["artifact_fpath"]
    if artifact is None and dataset.type not in _SPLITS:
        raise DataError(
            f"dataset '{dataset.name}' does not name its file in {repo_id}",
            next="add artifact_fpath to its source",
        )
    return FetchRequest(repo_id, artifact, None if artifact else dataset.type, output=target)
