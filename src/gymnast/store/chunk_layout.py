"""File names of a chunked run: everything below `dir/x_chunks/`.

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
_ROW_REQUEST: Final = re.compile(r"ask\.(\d+)\.(.+)")


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
    def worker_spec(self) -> Path:
        return self.folder / "order.json"

    @property
    def bad_rows(self) -> Path:
        """Failure records of skipped input rows, which belong to no chunk."""
        return self.folder / "bad_rows.jsonl"

    @property
    def planning(self) -> Path:
        """Leased by the process that plans the run."""
        return self.folder / "planning"

    @property
    def submitting(self) -> Path:
        """Leased by the process that submits, where files cannot be locked."""
        return self.folder / "submitting"

    @property
    def writing(self) -> Path:
        """Leased by the process that writes the run's own files, where they cannot be locked."""
        return self.folder / "writing"

    def standby(self, number: int) -> ChunkFolder:
        """Leased by a worker that waits to take over from others."""
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
    path: Path

    @property
    def chunk_id(self) -> str:
        return self.path.name

    def lease(self, epoch: int) -> Path:
        return self.path / f"lease.{epoch}.json"

    def heartbeat(self, epoch: int) -> Path:
        return self.path / f"beat.{epoch}.json"

    def end(self, epoch: int) -> Path:
        return self.path / f"end.{epoch}.json"

    def scored_records(self, epoch: int) -> Path:
        return self.path / f"{epoch}.jsonl"

    def failures(self, epoch: int) -> Path:
        return self.path / f"{epoch}_failures.jsonl"

    def ceded_chunk(self, epoch: int, number: int) -> Path:
        return self.path / f"ceded.{epoch}.{number}.json"

    def row_request(self, epoch: int, worker: str) -> Path:
        return self.path / f"ask.{epoch}.{worker}"

    def child_id(self, epoch: int, number: int) -> str:
        return f"{self.chunk_id}.{epoch}.{number}"


@dataclass(frozen=True, slots=True)
class ChunkNames:
    """The parsed listing of a chunk's folder."""

    epochs: tuple[int, ...] = ()
    """The epochs of its leases, ascending."""
    ceded: tuple[tuple[int, int], ...] = ()
    row_requests: tuple[tuple[int, str], ...] = ()

    @classmethod
    def parse(cls, names: list[str]) -> ChunkNames:
        epochs = sorted(int(match[1]) for name in names if (match := _LEASE.fullmatch(name)))
        ceded = sorted((int(match[1]), int(match[2])) for name in names if (match := _CEDED.fullmatch(name)))
        row_requests = sorted((int(match[1]), match[2]) for name in names if (match := _ROW_REQUEST.fullmatch(name)))
        return cls(tuple(epochs), tuple(ceded), tuple(row_requests))


def planned_ancestor(chunk_id: str) -> str:
    """The planned chunk that a chunk is, or was ceded from."""
    return chunk_id.partition(".")[0]


def parent_of(chunk_id: str) -> tuple[str, int, int] | None:
    """The parent, its epoch and the number of this chunk among those it ceded; None for a planned chunk."""
    parts = chunk_id.rsplit(".", 2)
    return (parts[0], int(parts[1]), int(parts[2])) if len(parts) == 3 else None
