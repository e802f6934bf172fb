"""Names of the files of a run that many work on: everything below `dir/x_chunks/`.

plan.json  order.json  bad_rows.jsonl  planning/  submitting/  writing/  standby.N/
submissions/N.json  submissions/N/intent.json
c/<chunk>/lease.<epoch>.json  beat.<epoch>.json  end.<epoch>.json  ask.<epoch>.<worker>
c/<chunk>/<epoch>.jsonl  <epoch>_failures.jsonl  ceded.<epoch>.<k>.json
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.store.paths import RunPaths

_LEASE: Final = re.compile(r"lease\.(\d+)\.json")
_CEDED: Final = re.compile(r"ceded\.(\d+)\.(\d+)\.json")
_ASK: Final = re.compile(r"ask\.(\d+)\.(.+)")


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """The folder `x_chunks` of a run."""

    folder: Path

    @classmethod
    def of(cls, run: RunPaths) -> ChunkLayout:
        return cls(run.chunks)

    @property
    def plan(self) -> Path:
        return self.folder / "plan.json"

    @property
    def order(self) -> Path:
        return self.folder / "order.json"

    @property
    def bad_rows(self) -> Path:
        """Failure records of input rows that were skipped: they belong to no chunk."""
        return self.folder / "bad_rows.jsonl"

    @property
    def planning(self) -> Path:
        """Leased by whoever plans the run."""
        return self.folder / "planning"

    @property
    def submitting(self) -> Path:
        """Leased by whoever submits, where files cannot be locked."""
        return self.folder / "submitting"

    @property
    def writing(self) -> Path:
        """Leased by whoever writes the run's own files, where they cannot be locked."""
        return self.folder / "writing"

    def standby(self, number: int) -> ChunkFolder:
        """Leased by a worker that waits for what others leave."""
        return ChunkFolder(self.folder / f"standby.{number}")

    @property
    def submissions(self) -> Path:
        return self.folder / "submissions"

    @property
    def chunks(self) -> Path:
        return self.folder / "c"

    def chunk(self, chunk_id: str) -> ChunkFolder:
        return ChunkFolder(self.chunks / chunk_id)

    @property
    def is_planned(self) -> bool:
        return self.plan.exists()


@dataclass(frozen=True, slots=True)
class ChunkFolder:
    """The folder of one chunk."""

    path: Path

    @property
    def chunk_id(self) -> str:
        return self.path.name

    def lease(self, epoch: int) -> Path:
        return self.path / f"lease.{epoch}.json"

    def beat(self, epoch: int) -> Path:
        return self.path / f"beat.{epoch}.json"

    def end(self, epoch: int) -> Path:
        return self.path / f"end.{epoch}.json"

    def scored(self, epoch: int) -> Path:
        return self.path / f"{epoch}.jsonl"

    def failures(self, epoch: int) -> Path:
        return self.path / f"{epoch}_failures.jsonl"

    def ceded(self, epoch: int, number: int) -> Path:
        return self.path / f"ceded.{epoch}.{number}.json"

    def ask(self, epoch: int, worker: str) -> Path:
        return self.path / f"ask.{epoch}.{worker}"

    def child_id(self, epoch: int, number: int) -> str:
        return f"{self.chunk_id}.{epoch}.{number}"


@dataclass(frozen=True, slots=True)
class ChunkNames:
    """What a listing of a chunk's folder says."""

    epochs: tuple[int, ...] = ()
    """Of the leases, ascending."""
    ceded: tuple[tuple[int, int], ...] = ()
    asks: tuple[tuple[int, str], ...] = ()

    @classmethod
    def parse(cls, names: list[str]) -> ChunkNames:
        epochs = sorted(int(found[1]) for name in names if (found := _LEASE.fullmatch(name)))
        ceded = sorted((int(found[1]), int(found[2])) for name in names if (found := _CEDED.fullmatch(name)))
        asks = sorted((int(found[1]), found[2]) for name in names if (found := _ASK.fullmatch(name)))
        return cls(tuple(epochs), tuple(ceded), tuple(asks))


def planned_id(chunk_id: str) -> str:
    """The planned chunk that a chunk is or was ceded from."""
    return chunk_id.partition(".")[0]


def parent_of(chunk_id: str) -> tuple[str, int, int] | None:
    """Parent, its epoch and the number of the cession that made this chunk; None for a planned one."""
    parts = chunk_id.rsplit(".", 2)
    return (parts[0], int(parts[1]), int(parts[2])) if len(parts) == 3 else None
