"""`data prepare`: validates the configured datasets and concatenates them by type, with metrics of each and of all.

A row that cannot be run is an error with its file and line. On bad rows or a metrics conflict nothing is written: files
appear only after everything has been validated.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.data.datasets import Dataset, configured_datasets, fetch_missing, locate_files, sibling_path
from gymnast.data.metrics import EXAMPLES, Metrics, MetricsFile, compare_with_existing
from gymnast.data.pending_files import PendingFiles
from gymnast.data.problems import FileProblem, Problems
from gymnast.data.row import BadRow, read_row
from gymnast.data.spill import ScratchFile
from gymnast.errors import DataError, UserError
from gymnast.rollouts.prompt import read_template
from gymnast.store.atomic import atomic_output
from gymnast.store.lines import numbered_lines
from gymnast.types.task import AGENT_REF

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gymnast.config import Config
    from gymnast.data.hub import Hub
    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.types.json import JsonObject

MODES: Final = {
    "train_preparation": ("train", "validation", "benchmark"),
    "example_validation": ("example",),
}
"""The dataset types of each mode."""


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """What to prepare, and where to write it."""

    mode: str
    output_dir: Path
    download: bool = False
    """Download datasets whose files are missing."""
    data_source: str | None = None
    """For a dataset with several sources: `huggingface` (the default) or `gitlab`."""
    overwrite_conflicts: bool = False
    """Replace metrics files whose content differs."""


@dataclass(frozen=True, slots=True)
class PrepareResult:
    """The result: for each type its files, row count and datasets."""

    types: dict[str, JsonObject]
    overwritten: tuple[Path, ...] = ()
    """Metrics files whose content differed."""


@dataclass(slots=True)
class _Part:
    """One dataset being prepared."""

    dataset: Dataset
    path: Path
    metrics: Metrics


def prepare(config: Config, request: PrepareRequest, hub: Hub, say: Callable[[str], None]) -> PrepareResult:
    """Validate, measure and concatenate the datasets. Raises one DataError with all problems."""
    datasets = configured_datasets(config, MODES[request.mode])
    if request.download:
        fetch_missing(config, datasets, hub, data_source=request.data_source, say=say)
    paths = locate_files(config, datasets)
    _refuse_overwriting(request.output_dir, datasets, paths)
    with ScratchFile() as scratch, PendingFiles() as files:
        collator = _Collator(config, request.output_dir, scratch, files)
        for dataset, path in zip(datasets, paths, strict=True):
            collator.read(dataset, path)
        collator.problems.raise_if_any("nothing was written")
        metrics_files = collator.metrics_files()
        overwritten = _settle_conflicts(metrics_files, overwrite=request.overwrite_conflicts)
        for file in metrics_files:
            if not file.is_current:
                files.open(file.path).write(file.text)
        files.commit()
    for file in metrics_files:
        file.conflict_path.unlink(missing_ok=True)
    return PrepareResult(collator.summary(), overwritten)


def write_split_metrics(config: Config, split: str, path: Path) -> None:
    """Write the metrics of the configured datasets of one type, as `data prepare` does. Rows that cannot be run are
    left out."""
    datasets = configured_datasets(config, (split,))
    with ScratchFile() as scratch:
        parts = [
            _measure(config, dataset, file, Metrics(scratch))
            for dataset, file in zip(datasets, locate_files(config, datasets), strict=True)
        ]
        content = _merge_metrics(parts, scratch)
    with atomic_output(path) as out:
        out.write(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")


def _measure(config: Config, dataset: Dataset, path: Path, metrics: Metrics) -> _Part:
    template = (
        read_template(config.roots.require(dataset.prompt_config, "prompt_config")) if dataset.prompt_config else None
    )
    for _, line in numbered_lines(path):
        with suppress(BadRow):
            metrics.observe(read_row(line, template), dataset.num_repeats)
    return _Part(dataset, path, metrics)


def _refuse_overwriting(output_dir: Path, datasets: list[Dataset], paths: list[Path]) -> None:
    outputs = {(output_dir / f"{dataset.type}.jsonl").resolve() for dataset in datasets}
    for path in paths:
        if path.resolve() in outputs:
            raise UserError("the output would overwrite a dataset", where=str(path), next="choose another output dir")


class _Collator:
    """Reads all datasets in one pass, type by type."""

    def __init__(self, config: Config, output_dir: Path, scratch: ScratchFile, files: PendingFiles) -> None:
        self._config = config
        self._output_dir = output_dir
        self._scratch = scratch
        self._files = files
        self._parts: defaultdict[str, list[_Part]] = defaultdict(list)
        self.problems = Problems()

    def read(self, dataset: Dataset, path: Path) -> None:
        """Validate and measure a dataset; write its rows next to it and to the file of its type."""
        part = _Part(dataset, path, Metrics(self._scratch))
        template = self._template(dataset)
        sibling = self._files.open(sibling_path(self._config, path, "_prepare.jsonl"))
        type_file = self._files.open(self._rows_path(dataset.type))
        number = 0
        for number, line in numbered_lines(path):
            try:
                row = read_row(line, template)
            except BadRow as error:
                self.problems.add("row", FileProblem(dataset.jsonl_fpath, number, str(error)))
                continue
            part.metrics.observe(row, dataset.num_repeats)
            lines = _route(row.data, dataset)
            sibling.write(lines)
            type_file.write(lines)
        if not number:
            self.problems.add("row", FileProblem(dataset.jsonl_fpath, 0, "the file has no rows"))
        self._parts[dataset.type].append(part)

    def metrics_files(self) -> list[MetricsFile]:
        """The metrics of every dataset and type, compared with the existing files."""
        files: dict[Path, MetricsFile] = {}
        for part in chain.from_iterable(self._parts.values()):
            path = sibling_path(self._config, part.path, "_metrics.json")
            if path not in files:  # agents may share a file; the first agent's entry is its header
                content = part.dataset.header() | part.metrics.as_json()
                shipped = part.path.with_name(path.name)
                files[path] = compare_with_existing(path, content, existing=shipped)
        for kind, parts in self._parts.items():
            path = self._metrics_path(kind)
            files[path] = compare_with_existing(path, _merge_metrics(parts, self._scratch))
        return list(files.values())

    def summary(self) -> dict[str, JsonObject]:
        return {
            kind: {
                "jsonl_fpath": str(self._rows_path(kind)),
                "metrics_fpath": str(self._metrics_path(kind)),
                "examples": sum(part.metrics.examples for part in parts),
                "datasets": [_describe(part) for part in parts],
            }
            for kind, parts in self._parts.items()
        }

    def _template(self, dataset: Dataset) -> PromptTemplate | None:
        path = dataset.prompt_config
        return read_template(self._config.roots.require(path, "prompt_config")) if path else None

    def _rows_path(self, kind: str) -> Path:
        return self._output_dir / f"{kind}.jsonl"

    def _metrics_path(self, kind: str) -> Path:
        return self._output_dir / f"{kind}_metrics.json"


def _route(row: JsonObject, dataset: Dataset) -> bytes:
    """The row's lines: addressed to the dataset's agent, repeated `num_repeats` times."""
    agent = {"type": "responses_api_agents", "name": dataset.agent}
    return (orjson.dumps({**row, AGENT_REF: agent}) + b"\n") * dataset.num_repeats


def _merge_metrics(parts: list[_Part], scratch: ScratchFile) -> JsonObject:
    """The metrics of a type, headed by its first dataset; with several, all are listed at the end."""
    merged = Metrics(scratch)
    for part in parts:
        merged.merge(part.metrics)
    content = parts[0].dataset.header() | merged.as_json()
    return content if len(parts) == 1 else content | {"Datasets": [_describe(part) for part in parts]}


def _describe(part: _Part) -> JsonObject:
    dataset = part.dataset
    return {
        "name": dataset.name,
        "agent": dataset.agent,
        "jsonl_fpath": dataset.jsonl_fpath,
        "num_repeats": dataset.num_repeats,
        EXAMPLES: part.metrics.examples,
    }


def _settle_conflicts(metrics_files: list[MetricsFile], *, overwrite: bool) -> tuple[Path, ...]:
    conflicts = [file for file in metrics_files if file.differences]
    if not conflicts or overwrite:
        return tuple(file.path for file in conflicts)
    with PendingFiles() as files:
        for file in conflicts:
            files.open(file.conflict_path).write(file.text)
        files.commit()
    lines = [f"\n  {file.path}: {text}" for file in conflicts for text in file.differences[:5]]
    raise DataError(
        f"the datasets do not match their metrics files; nothing was written{''.join(lines)}",
        where=", ".join(str(file.conflict_path) for file in conflicts),
        next="if the change is intended: --overwrite-metrics-conflicts (+overwrite_metrics_conflicts=true)",
    )
