"""The samples of a run as a file: all that were requested, the failed ones with their reasons, or an error."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Final

import msgspec
import orjson

from gymnast.errors import DataError, UserError
from gymnast.profile.plan_index import read_plan
from gymnast.store.keyset import KeySet
from gymnast.store.lines import numbered_lines
from gymnast.store.paths import RunPaths
from gymnast.store.records import record_file
from gymnast.store.replacing import replaced
from gymnast.train.causes import NEVER_CAME, fewer_rollouts
from gymnast.train.parquet import ParquetSamples, read_parquet
from gymnast.train.reading import DEFAULT_OPTIONS, sample_of
from gymnast.train.rows import SCHEMA_VERSION, row_of, sample_of_row
from gymnast.train.samples import RolloutFailure
from gymnast.types.task import FAILURE_TERMINAL, RolloutKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gymnast.train.errors import FewerRolloutsError
    from gymnast.train.reading import SampleOptions
    from gymnast.train.samples import Sample
    from gymnast.types.json import JsonObject

_ROLLOUT: Final = (1 << 32) - 1
PARQUET: Final = ".parquet"


@dataclass(slots=True)
class ExportSummary:
    """What a file of samples holds."""

    output: str
    requested: int = 0
    samples: int = 0
    scored: int = 0
    missing: int = 0
    """Requested and neither scored nor failed; they are not in the file."""
    segments: int = 0
    tokens: int = 0
    trained_samples: int = 0
    trained_tokens: int = 0
    masked: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def add(self, sample: Sample) -> None:
        """One more in the file."""
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
        """The summary as data."""
        said = {name: getattr(self, name) for name in self.__slots__}
        return {"schema_version": SCHEMA_VERSION, **said}


def export_samples(
    run: Path, output: Path, options: SampleOptions = DEFAULT_OPTIONS, *, partial: bool = False
) -> ExportSummary:
    """Write the samples of a run as JSONL or, where the name ends in .parquet, as Parquet.

    Raises FewerRolloutsError when rollouts of the run are still owed, unless `partial`; the file is not written then.
    """
    if output.resolve() == run.resolve():
        raise UserError("the export would replace the run it is made from", where=str(run), next="name another file")
    plan = _planned(run)
    summary = ExportSummary(str(output))
    scored = KeySet()
    with _writing(output) as write:
        for sample in _scored_samples(run, options, scored):
            write(sample)
            summary.add(sample)
        unscored = _unscored(run, scored)
        failed = [sample for sample in unscored.values() if sample is not None]
        for sample in failed:
            write(sample)
            summary.add(sample)
        owed = _owed(plan, scored, unscored)
        summary.requested, summary.missing = summary.samples + len(owed), len(owed)
        if not summary.requested:
            raise UserError("the run has no rollouts: there is nothing to export", where=str(run))
        if owed and not partial:
            raise _unfinished(run, failed, owed, summary.requested)
    return summary


def _scored_samples(run: Path, options: SampleOptions, scored: KeySet) -> Iterator[Sample]:
    """Every rollout of a run that is scored, in file order; their keys are added to `scored`."""
    for number, line in numbered_lines(run):
        if not line:
            continue
        try:
            sample = sample_of(line, options)
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            where = f"{run} line {number}"
            hint = "if the run was killed while it wrote this line: gymnast collect --resume repairs the file"
            raise DataError(f"not a record of a rollout: {error!r}", where=where, next=hint) from error
        if sample.key.packed in scored:
            raise DataError(
                f"rollout {sample.key} has more than one record",
                where=f"{run} line {number}",
                next="a sample that is there twice counts twice: gymnast collect --resume takes the second one out",
            )
        scored.add(sample.key.packed)
        yield sample


def _unscored(run: Path, scored: KeySet) -> dict[int, Sample | None]:
    """Rollouts without a score that have failed, by key: None for those that are still to be tried again.

    The last attempt decides: also what failed for good may have been asked for again.
    """
    found: dict[int, Sample | None] = {}
    failures = record_file(RunPaths(run).failures)
    for number, line in numbered_lines(failures) if failures.exists() else ():
        if not line:
            continue
        try:
            sample = sample_of(line, failed=True)
            is_final = bool(orjson.loads(line).get(FAILURE_TERMINAL))
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
            where = f"{failures.path} line {number}"
            raise DataError(f"the record of a failure cannot be read: {error!r}", where=where) from error
        if sample.key.packed not in scored:
            found[sample.key.packed] = sample if is_final else None
    return found


def _owed(plan: list[int], scored: KeySet, unscored: Mapping[int, Sample | None]) -> list[RolloutKey]:
    """What was requested and has neither a score nor failed for good."""
    tried = [packed for packed, sample in unscored.items() if sample is None]
    rest = [packed for packed in plan if packed not in scored and packed not in unscored]
    return [_key(packed) for packed in sorted([*tried, *rest])]


def _unfinished(run: Path, failed: list[Sample], owed: list[RolloutKey], requested: int) -> FewerRolloutsError:
    why = RolloutFailure(NEVER_CAME, "neither scored nor failed for good: the run is not finished")
    lost = [(sample.key, sample.failure) for sample in failed if sample.failure is not None]
    note = f"finish {run} with --resume, or export what there is with --partial"
    return fewer_rollouts([*lost, *((key, why) for key in owed)], requested, None, note)


def read_samples(path: Path) -> Iterator[Sample]:
    """The samples of a file that `export_samples` wrote."""
    if path.suffix == PARQUET:
        yield from read_parquet(path)
        return
    for number, line in numbered_lines(path):
        try:
            yield sample_of_row(orjson.loads(line))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a sample: {error!r}", where=f"{path} line {number}") from error


@contextmanager
def _writing(output: Path) -> Iterator[Callable[[Sample], None]]:
    with replaced(output) as stream:
        if output.suffix == PARQUET:
            with ParquetSamples(stream) as table:
                yield table.write
        else:
            yield lambda sample: _write_line(stream, sample)


def _write_line(stream: IO[bytes], sample: Sample) -> None:
    stream.write(orjson.dumps(row_of(sample)) + b"\n")


def _planned(run: Path) -> list[int]:
    """Packed keys of what was requested; none for a run without its plan."""
    path = RunPaths(run).materialized_inputs
    found: list[int] = read_plan([path]).packed.tolist() if path.exists() else []
    return found


def _key(packed: int) -> RolloutKey:
    return RolloutKey(packed >> 32, packed & _ROLLOUT)
