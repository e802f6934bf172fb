"""The samples of a run as a file: all that were requested, the failed ones with their reasons, or an error."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Final

import msgspec
import orjson

from gymnast.errors import DataError, UserError
from gymnast.profile.failures import read_failures
from gymnast.profile.plan_index import read_plan
from gymnast.store.keyset import KeySet
from gymnast.store.lines import numbered_lines
from gymnast.store.paths import RunPaths
from gymnast.store.replacing import replaced
from gymnast.train.causes import NEVER_CAME, fewer_rollouts
from gymnast.train.parquet import ParquetSamples, read_parquet
from gymnast.train.reading import DEFAULT_OPTIONS, failed_sample, sample_of
from gymnast.train.rows import SCHEMA_VERSION, row_of, sample_of_row
from gymnast.train.samples import RolloutFailure
from gymnast.types.task import RolloutKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
    there = KeySet()
    lost: list[tuple[RolloutKey, RolloutFailure]] = []
    with _writing(output) as write:
        for sample in samples_of_run(run, options):
            write(sample)
            summary.add(sample)
            there.add(sample.key.packed)
            lost += [(sample.key, sample.failure)] if sample.failure is not None else []
        owed = [_key(packed) for packed in plan if packed not in there]
        summary.requested, summary.missing = summary.samples + len(owed), len(owed)
        if owed and not partial:
            why = RolloutFailure(NEVER_CAME, "neither scored nor failed: the run is not finished")
            note = f"finish {run} with --resume, or export what there is with --partial"
            raise fewer_rollouts([*lost, *((key, why) for key in owed)], summary.requested, None, note)
    return summary


def samples_of_run(run: Path, options: SampleOptions = DEFAULT_OPTIONS) -> Iterator[Sample]:
    """Every rollout of a run that is scored, in file order, and then every one that is not and has failed."""
    scored = KeySet()
    for number, line in numbered_lines(run):
        if not line:
            continue
        try:
            sample = sample_of(line, options)
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            where = f"{run} line {number}"
            raise DataError(f"not a record of a rollout: {error!r}", where=where) from error
        scored.add(sample.key.packed)
        yield sample
    failures = read_failures([RunPaths(run).failures], scored)
    for packed, kind in failures.last_kind.items():
        yield failed_sample(_key(packed), RolloutFailure(kind))


def read_samples(path: Path) -> Iterator[Sample]:
    """The samples of a file that `export_samples` wrote."""
    if path.suffix == PARQUET:
        yield from read_parquet(path)
        return
    for number, line in numbered_lines(path):
        try:
            yield sample_of_row(orjson.loads(line))
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
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
