"""`data prepare`: the configured datasets, checked and put together by type, with the metrics of each and of all.

A row that could not be run is an error that names its file and line; then, as with a metrics conflict, nothing is
put together. Files appear when everything is known to be good.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.data.configured import Dataset, beside, configured_datasets
from gymnast.data.findings import Finding, Findings
from gymnast.data.locate import dataset_files, fetch_missing
from gymnast.data.metrics import EXAMPLES, Metrics
from gymnast.data.metrics_file import MetricsFile, compared
from gymnast.data.pending import PendingFiles
from gymnast.data.row import BadRow, read_row
from gymnast.data.spill import Scratch
from gymnast.errors import DataError, UserError
from gymnast.rollouts.prompt import read_template
from gymnast.store.lines import numbered_lines
from gymnast.types.task import AGENT_REF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gymnast.config import Config
    from gymnast.data.hub import Hub
    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.types.json import JsonObject

MODES: Final = {
    "train_preparation": ("train", "validation", "benchmark"),
    "example_validation": ("example",),
}
"""Which types of datasets a mode puts together."""


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """What to put together, and where."""

    mode: str
    output_dir: Path
    download: bool = False
    """Fetch datasets whose files are missing."""
    data_source: str | None = None
    """For a dataset that has several sources: `huggingface` (also if not said) or `gitlab`."""
    overwrite_conflicts: bool = False
    """Replace metrics files that say something else."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was put together: for each type its files, its rows and its datasets."""

    types: dict[str, JsonObject]
    overwritten: tuple[Path, ...] = ()
    """Metrics files that said something else."""


@dataclass(slots=True)
class _Part:
    """One dataset on its way into the result."""

    dataset: Dataset
    path: Path
    metrics: Metrics


def prepare(config: Config, request: PrepareRequest, hub: Hub, say: Callable[[str], None]) -> Prepared:
    """Read, check, measure and put together. Raises DataError with everything that is wrong."""
    datasets = configured_datasets(config, MODES[request.mode])
    if request.download:
        fetch_missing(config, datasets, hub, data_source=request.data_source, say=say)
    paths = dataset_files(config, datasets)
    _refuse_overwriting(request.output_dir, datasets, paths)
    with Scratch() as scratch, PendingFiles() as files:
        work = _Collation(config, request.output_dir, scratch, files)
        for dataset, path in zip(datasets, paths, strict=True):
            work.read(dataset, path)
        work.findings.refuse("nothing was put together")
        metrics_files = work.metrics_files()
        overwritten = _settle_conflicts(metrics_files, overwrite=request.overwrite_conflicts)
        for one in metrics_files:
            if not one.is_current:
                files.open(one.path).write(one.text)
        files.commit()
    for one in metrics_files:
        one.conflict_path.unlink(missing_ok=True)
    return Prepared(work.summary(), overwritten)


def _refuse_overwriting(output_dir: Path, datasets: list[Dataset], paths: list[Path]) -> None:
    outputs = {(output_dir / f"{dataset.type}.jsonl").resolve() for dataset in datasets}
    for path in paths:
        if path.resolve() in outputs:
            raise UserError("the result would overwrite a dataset", where=str(path), next="give another output folder")


class _Collation:
    """One pass over all datasets, type by type."""

    def __init__(self, config: Config, output_dir: Path, scratch: Scratch, files: PendingFiles) -> None:
        self._config = config
        self._output_dir = output_dir
        self._scratch = scratch
        self._files = files
        self._parts: defaultdict[str, list[_Part]] = defaultdict(list)
        self.findings = Findings()

    def read(self, dataset: Dataset, path: Path) -> None:
        """Check and measure a dataset; its rows go into the file beside it and into the file of its type."""
        part = _Part(dataset, path, Metrics(self._scratch))
        template = self._template(dataset)
        beside_it = self._files.open(beside(self._config, path, "_prepare.jsonl"))
        of_type = self._files.open(self._rows_path(dataset.type))
        number = 0
        for number, line in numbered_lines(path):
            try:
                row = read_row(line, template)
            except BadRow as error:
                self.findings.add("row", Finding(dataset.jsonl_fpath, number, str(error)))
                continue
            part.metrics.observe(row, dataset.num_repeats)
            lines = _routed(row.data, dataset)
            beside_it.write(lines)
            of_type.write(lines)
        if not number:
            self.findings.add("row", Finding(dataset.jsonl_fpath, 0, "the file has no rows"))
        self._parts[dataset.type].append(part)

    def metrics_files(self) -> list[MetricsFile]:
        """The metrics of every dataset and of every type, compared with what is there."""
        found: dict[Path, MetricsFile] = {}
        for part in self._all_parts():
            path = beside(self._config, part.path, "_metrics.json")
            if path not in found:  # agents may share a file; the first one's entry heads its metrics
                content = part.dataset.header() | part.metrics.as_json()
                shipped = part.path.with_name(path.name)
                found[path] = compared(path, content, existing=shipped)
        for kind, parts in self._parts.items():
            path = self._metrics_path(kind)
            found[path] = compared(path, _merged(parts, self._scratch))
        return list(found.values())

    def summary(self) -> dict[str, JsonObject]:
        return {
            kind: {
                "jsonl_fpath": str(self._rows_path(kind)),
                "metrics_fpath": str(self._metrics_path(kind)),
                "examples": sum(part.metrics.examples for part in parts),
                "datasets": [_described(part) for part in parts],
            }
            for kind, parts in self._parts.items()
        }

    def _template(self, dataset: Dataset) -> PromptTemplate | None:
        given = dataset.prompt_config
        return read_template(self._config.roots.require(given, "prompt_config")) if given else None

    def _all_parts(self) -> Iterable[_Part]:
        return (part for parts in self._parts.values() for part in parts)

    def _rows_path(self, kind: str) -> Path:
        return self._output_dir / f"{kind}.jsonl"

    def _metrics_path(self, kind: str) -> Path:
        return self._output_dir / f"{kind}_metrics.json"


def _routed(row: JsonObject, dataset: Dataset) -> bytes:
    """The lines of a row: for the agent whose dataset it is, as often as the dataset says."""
    agent = {"type": "responses_api_agents", "name": dataset.agent}
    return (orjson.dumps({**row, AGENT_REF: agent}) + b"\n") * dataset.num_repeats


def _merged(parts: list[_Part], scratch: Scratch) -> JsonObject:
    """The metrics of a type. They begin with its first dataset's entry; of several, all are listed at the end."""
    merged = Metrics(scratch)
    for part in parts:
        merged.merge(part.metrics)
    content = parts[0].dataset.header() | merged.as_json()
    return content if len(parts) == 1 else content | {"Datasets": [_described(part) for part in parts]}


def _described(part: _Part) -> JsonObject:
    dataset = part.dataset
    return {
        "name": dataset.name,
        "agent": dataset.agent,
        "jsonl_fpath": dataset.jsonl_fpath,
        "num_repeats": dataset.num_repeats,
        EXAMPLES: part.metrics.examples,
    }


def _settle_conflicts(metrics_files: list[MetricsFile], *, overwrite: bool) -> tuple[Path, ...]:
    conflicts = [one for one in metrics_files if one.differences]
    if not conflicts or overwrite:
        return tuple(one.path for one in conflicts)
    with PendingFiles() as files:
        for one in conflicts:
            files.open(one.conflict_path).write(one.text)
        files.commit()
    lines = [f"\n  {one.path}: {text}" for one in conflicts for text in one.differences[:5]]
    raise DataError(
        f"the datasets are not what their metrics files say; nothing was put together{''.join(lines)}",
        where=", ".join(str(one.conflict_path) for one in conflicts),
        next="if the change is meant: --overwrite-metrics-conflicts (+overwrite_metrics_conflicts=true)",
    )
