"""One benchmark, or one file of tasks, from its data to its figures: resolve, make the tasks, score the run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from gymnast.benchmarks.adapt import read_data
from gymnast.benchmarks.catalog import find_benchmark
from gymnast.benchmarks.data_history import DataHistory
from gymnast.benchmarks.definition import Protocol
from gymnast.benchmarks.scores import BenchmarkScores, score_run
from gymnast.benchmarks.source import get_data
from gymnast.benchmarks.tasks import write_tasks
from gymnast.errors import DataError, NotFoundError, UserError
from gymnast.profile.compare import Comparison, compare, match_tasks
from gymnast.profile.run_profile import LoadedRun, load_run
from gymnast.profile.seeds import ANSWER_KEY
from gymnast.store.atomic import atomic_output
from gymnast.store.paths import RunPaths
from gymnast.store.records import record_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gymnast.benchmarks.definition import Benchmark
    from gymnast.config.roots import Roots
    from gymnast.data.hub import Hub

_BENCHMARK_FILES: Final = (".yaml", ".yml")
_DATA: Final = "data.json"
_TASKS: Final = "tasks.jsonl"
_MAX_SEARCHED: Final = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """What to evaluate: a benchmark, or a file of tasks."""

    name: str
    benchmark: Benchmark | None = None
    tasks: Path | None = None

    @property
    def protocol(self) -> Protocol:
        return self.benchmark.definition.protocol if self.benchmark is not None else Protocol()

    def departures(self, settings: Mapping[str, Any]) -> Iterator[str]:
        """Where settings differ from the published protocol, for people."""
        if self.benchmark is None:
            return
        for name, value in settings.items():
            published = getattr(self.protocol, name)
            if published is not None and value != published:
                yield f"note: {self.name}: {name} is {value}; the published protocol has {published}"


class DataOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Which data a run was made from."""

    file: str
    origin: str
    sha256: str
    commit: str | None = None
    revision: str | None = None
    """The branch, tag or commit that was asked for."""
    rows: int

    def describe(self) -> str:
        """For people: where the file came from, and its checksum."""
        revision = f" ({self.revision})" if self.revision not in {None, self.commit} else ""
        return f"{self.origin}{revision}, {self.file}, SHA-256 {self.sha256[:12]}"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one benchmark."""

    schema_version: int = 1
    benchmark: str
    output: str
    figures: str
    """The file with this result."""
    data: DataOrigin | None
    protocol: dict[str, Any]
    scores: BenchmarkScores
    baseline: str | None = None
    baseline_scores: BenchmarkScores | None = None
    comparison: Comparison | None = None
    data_difference: str | None = None
    """How the baseline's data differs, if it does."""


def resolve(name: str, roots: Roots) -> Plan:
    """A benchmark by its name or file, or a file of tasks."""
    if Path(name).suffix and not name.endswith(_BENCHMARK_FILES):
        return Plan(Path(name).name.split(".")[0], tasks=roots.require(name, "the file of tasks"))
    benchmark = find_benchmark(name, roots)
    return Plan(benchmark.name, benchmark)


def unique_names(plans: Sequence[Plan]) -> list[Plan]:
    """The plans; an error if two would write to the same folder."""
    names = [plan.name for plan in plans]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"'{twice[0]}' is named twice, and both would write to the same folder")
    return list(plans)


def prepare_tasks(
    plan: Plan,
    folder: Path,
    hub: Hub,
    *,
    local_copy: Path | None = None,
    limit: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    revision: str | None = None,
    history: DataHistory | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Path, DataOrigin | None]:
    """Make the file of tasks. A resumed run uses the one that it started with, without getting the data again."""
    path, origin_path = folder / _TASKS, folder / _DATA
    if not resume and not overwrite and RunPaths(folder / "rollouts.jsonl").existing_files():
        raise UserError(
            "the output of an earlier run exists",
            where=str(folder),
            next="finish it with --resume, replace it with --overwrite, or choose another --output-dir",
        )
    if plan.benchmark is None:
        assert plan.tasks is not None
        if revision is not None:
            raise UserError(f"--revision is for benchmarks from the Hub; {plan.tasks} is a file")
        return plan.tasks, None
    if resume and path.is_file() and origin_path.is_file():
        return path, _read_origin(origin_path, revision)
    if resume and not RunPaths(folder / "rollouts.jsonl").existing_files():
        raise NotFoundError("there is no run to resume", where=str(folder), next="start it without --resume")
    file = get_data(plan.benchmark, hub, local_copy, revision)
    for line in (history or DataHistory()).update(plan.name, file):
        say(line)
    rows = write_tasks(plan.benchmark, read_data(plan.benchmark, file), path, limit=limit)
    origin = DataOrigin(
        file=file.name,
        origin=file.origin,
        sha256=file.sha256,
        commit=file.commit,
        revision=file.revision,
        rows=rows,
    )
    _write_json(origin_path, origin)
    return path, origin


def _read_origin(path: Path, revision: str | None) -> DataOrigin:
    """The data that a run started with; an error if another revision is asked for."""
    try:
        origin = msgspec.json.decode(path.read_bytes(), type=DataOrigin)
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(f"cannot read which data the run started with: {error}", where=str(path)) from error
    if revision not in {None, origin.commit, origin.revision}:
        raise UserError(
            f"this run started with the data of {origin.origin}, not of '{revision}'",
            where=str(path),
            next="leave --revision out to finish it, or choose another --output-dir",
        )
    return origin


def compare_data(data: DataOrigin | None, baseline: Path) -> str | None:
    """A warning if a baseline was made from another version of the data."""
    path = baseline.with_name(_DATA)
    if data is None or not path.is_file():
        return None
    earlier = _read_origin(path, None)
    if earlier.sha256 == data.sha256:
        return None
    return f"the baseline was made from other data: {earlier.describe()}; this run from {data.describe()}"


def evaluate(
    plan: Plan,
    output: Path,
    data: DataOrigin | None,
    baseline: Path | None = None,
    *,
    ks: Sequence[int] | None = None,
    answer_key: str | None = None,
    subset_key: str | None = None,
    pass_hat: bool = False,
) -> Evaluation:
    """Score a run, compare it with a baseline, and write the figures next to it."""
    metrics = plan.benchmark.definition.metrics if plan.benchmark is not None else None
    answer = answer_key or (metrics.answer if metrics is not None else ANSWER_KEY)
    subset = subset_key or (metrics.subset if metrics is not None else None)
    pass_hat = pass_hat or (metrics is not None and metrics.pass_hat)
    run = _load(output, answer)
    scores = score_run(run, answer_key=answer, subset_key=subset, ks=ks or (), pass_hat=pass_hat)
    if plan.benchmark is None and answer_key is None:  # the default field was only a guess
        scores = msgspec.structs.replace(scores, notes=[note for note in scores.notes if f"`{answer}`" not in note])
    figures = output.with_name(f"{output.stem}_eval.json")
    result = Evaluation(
        benchmark=plan.name,
        output=str(output),
        figures=str(figures),
        data=data,
        protocol=plan.protocol.model_dump(mode="json", exclude_none=True) if plan.benchmark is not None else {},
        scores=scores,
    )
    if baseline is not None and len(run.groups):
        earlier = _load(baseline, answer)
        comparison = _compare(earlier, run)
        same = (
            score_run(earlier, answer_key=answer, subset_key=subset, ks=ks or (), pass_hat=pass_hat)
            if comparison is not None
            else None
        )
        result = msgspec.structs.replace(
            result,
            baseline=str(baseline),
            baseline_scores=same,
            comparison=comparison,
            data_difference=compare_data(data, baseline),
        )
    _write_json(figures, result)
    return result


def _compare(earlier: LoadedRun, run: LoadedRun) -> Comparison | None:
    """None if the two have no task in common."""
    changes, unmatched, matched_by = match_tasks(earlier, run)
    return compare(changes, unmatched=unmatched, matched_by=matched_by) if changes else None


def _load(output: Path, answer_key: str | None) -> LoadedRun:
    rollouts = (output,) if record_file(output).exists() else ()
    texts = (answer_key,) if answer_key is not None and _has_field(output, answer_key) else ()
    return load_run((RunPaths(output).materialized_inputs,), rollouts, allow_partial=True, texts=texts)


def _has_field(output: Path, name: str) -> bool:
    """Whether the first records have a field, be it null."""
    records = record_file(output)
    if not records.exists():
        return False
    with records.open() as stream:
        return any(name in orjson.loads(line) for line in islice(stream, _MAX_SEARCHED) if not line.isspace())


def _write_json(path: Path, value: msgspec.Struct) -> None:
    with atomic_output(path) as out:
        out.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
