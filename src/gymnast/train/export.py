"""Exports the samples of a run to a file: all requested ones, failed ones with their reasons, or an error."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import orjson

from gymnast.errors import DataError, UserError
from gymnast.profile.plan_index import read_plan
from gymnast.store.atomic import atomic_output
from gymnast.store.keys import KeySet
from gymnast.store.lines import numbered_lines
from gymnast.store.paths import RunPaths
from gymnast.store.records import record_file
from gymnast.train.causes import NEVER_CAME, fewer_rollouts
from gymnast.train.parquet import ParquetSamples, read_parquet
from gymnast.train.sample_reader import DEFAULT_OPTIONS, sample_of
from gymnast.train.sample_rows import SCHEMA_VERSION, sample_from_row, sample_to_row
from gymnast.train.samples import RolloutFailure
from gymnast.types.task import FAILURE_TERMINAL, RolloutKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gymnast.train.errors import FewerRolloutsError
    from gymnast.train.sample_reader import SampleOptions
    from gymnast.train.samples import Sample
    from gymnast.types.json import JsonObject

_ROLLOUT: Final = (1 << 32) - 1
PARQUET: Final = ".parquet"
_SUFFIXES: Final = frozenset({".jsonl", PARQUET})


@dataclass(slots=True)
class ExportSummary:
    """Statistics of an exported file."""

    output: str
    requested: int = 0
    samples: int = 0
    scored: int = 0
    missing: int = 0
    """Requested, but neither scored nor failed; not in the file."""
    segments: int = 0
    tokens: int = 0
    trained_samples: int = 0
    trained_tokens: int = 0
    masked: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def add(self, sample: Sample) -> None:
        """Count a sample."""
        self.samples += 1
        self.scored += sample.is_scored
        self.segments += len(sample.segments)
        self.tokens += sum(len(segment.ids) for segment in sample.segments)
        self.trained_samples += sample.is_trainable
        self.trained_tokens += sample.trained
        if sample.mask_reason is not None:
            self.masked[sample.mask_reason.value] += 1
        if sample.failure is not None:
            self.failed[sample.failure.kind] += 1

    def as_json(self) -> JsonObject:
        return {"schema_version": SCHEMA_VERSION, **{name: getattr(self, name) for name in self.__slots__}}


def export_samples(
    run: Path, output: Path, options: SampleOptions = DEFAULT_OPTIONS, *, partial: bool = False
) -> ExportSummary:
    """Write the samples of a run as JSONL or, if the name ends in .parquet, as Parquet.

    Raises FewerRolloutsError, without writing the file, if rollouts are still owed, unless `partial` is set.
    """
    _check_output(run, output)
    plan = _read_plan(run)
    summary = ExportSummary(str(output))
    scored = KeySet()
    with _open_writer(output) as write:
        for sample in _scored_samples(run, options, scored):
            write(sample)
            summary.add(sample)
        unscored = _read_unscored(run, scored)
        failed = [sample for sample in unscored.values() if sample is not None]
        for sample in failed:
            write(sample)
            summary.add(sample)
        owed = _owed_keys(plan, scored, unscored)
        summary.requested, summary.missing = summary.samples + len(owed), len(owed)
        if not summary.requested:
            raise UserError("the run has no rollouts to export", where=str(run))
        if owed and not partial:
            raise _unfinished_error(run, failed, owed, summary.requested)
    return summary


def _check_output(run: Path, output: Path) -> None:
    """Raise UserError for a file that cannot be the output, before anything is read."""
    if output.resolve() in {path.resolve() for path in RunPaths(run).all()}:
        raise UserError("the export would overwrite the run", where=str(output), next="choose another output file")
    if output.is_dir():
        raise UserError("the output is a folder", where=str(output), next=f"name a file: {output / 'samples.jsonl'}")
    if output.suffix not in _SUFFIXES:
        raise UserError(f"cannot write samples as '{output.name}'", next="name the file .jsonl or .parquet")


def _scored_samples(run: Path, options: SampleOptions, scored: KeySet) -> Iterator[Sample]:
    """The scored rollouts of a run in file order; adds their keys to `scored`."""
    for number, line in numbered_lines(run):
        if not line:
            continue
        try:
            sample = sample_of(line, options)
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            where = f"{run} line {number}"
            hint = "if the run was killed while writing this line, repair the file with `gymnast collect --resume`"
            raise DataError(f"not a rollout record: {error!r}", where=where, next=hint) from error
        if sample.key.packed in scored:
            raise DataError(
                f"rollout {sample.key} has more than one record",
                where=f"{run} line {number}",
                next="remove the duplicate with `gymnast collect --resume`: it would count twice",
            )
        scored.add(sample.key.packed)
        yield sample


def _read_unscored(run: Path, scored: KeySet) -> dict[int, Sample | None]:
    """Failed rollouts without a score, by key; None for those that will be retried.

    The last attempt decides: a permanent failure may have been retried on request.
    """
    failed: dict[int, Sample | None] = {}
    failures = record_file(RunPaths(run).failures)
    for number, line in numbered_lines(failures) if failures.exists() else ():
        if not line:
            continue
        try:
            sample = sample_of(line, failed=True)
            is_final = bool(orjson.loads(line).get(FAILURE_TERMINAL))
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
            where = f"{failures.path} line {number}"
            raise DataError(f"cannot read a failure record: {error!r}", where=where) from error
        if sample.key.packed not in scored:
            failed[sample.key.packed] = sample if is_final else None
    return failed


def _owed_keys(plan: list[int], scored: KeySet, unscored: Mapping[int, Sample | None]) -> list[RolloutKey]:
    """Rollouts that were requested and have neither a score nor a permanent failure."""
    retriable = [packed for packed, sample in unscored.items() if sample is None]
    untried = [packed for packed in plan if packed not in scored and packed not in unscored]
    return [_unpack(packed) for packed in sorted([*retriable, *untried])]


def _unfinished_error(run: Path, failed: list[Sample], owed: list[RolloutKey], requested: int) -> FewerRolloutsError:
    unfinished = RolloutFailure(NEVER_CAME, "neither scored nor permanently failed: the run is not finished")
    failures = [(sample.key, sample.failure) for sample in failed if sample.failure is not None]
    note = f"finish {run} with --resume, or export the existing samples with --allow-partial"
    return fewer_rollouts([*failures, *((key, unfinished) for key in owed)], requested, None, note)


def read_samples(path: Path) -> Iterator[Sample]:
    """The samples in a file written by `export_samples`."""
    if path.suffix == PARQUET:
        yield from read_parquet(path)
        return
    for number, line in numbered_lines(path):
        try:
            yield sample_from_row(orjson.loads(line))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a sample: {error!r}", where=f"{path} line {number}") from error


@contextmanager
def _open_writer(output: Path) -> Iterator[Callable[[Sample], object]]:
    with atomic_output(output) as stream:
        if output.suffix == PARQUET:
            with ParquetSamples(stream) as table:
                yield table.write
        else:
            yield lambda sample: stream.write(orjson.dumps(sample_to_row(sample)) + b"\n")


def _read_plan(run: Path) -> list[int]:
    """The packed keys of the requested rollouts; empty for a run without its plan."""
    path = RunPaths(run).materialized_inputs
    packed: list[int] = read_plan([path]).packed.tolist() if path.exists() else []
    return packed


def _unpack(packed: int) -> RolloutKey:
    return RolloutKey(packed >> 32, packed & _ROLLOUT)
