"""Names of a run's files, all derived from the output file `dir/x.jsonl`."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files of the run whose rollouts are in `output`."""

    output: Path

    def _beside(self, suffix: str) -> Path:
        return self.output.with_name(self.output.stem + suffix)

    @property
    def materialized_inputs(self) -> Path:
        return self._beside("_materialized_inputs.jsonl")

    @property
    def failures(self) -> Path:
        return self._beside("_failures.jsonl")

    @property
    def manifest(self) -> Path:
        return self._beside("_run.json")

    @property
    def aggregate_metrics(self) -> Path:
        return self._beside("_aggregate_metrics.json")

    @property
    def done(self) -> Path:
        return self.output.with_name(self.output.name + ".done")

    @property
    def lock(self) -> Path:
        return self._beside(".lock")

    @property
    def socket(self) -> Path:
        return self._beside(".sock")

    @property
    def logs(self) -> Path:
        return self._beside("_logs")

    @property
    def chunks(self) -> Path:
        """The folder of a run that many work on (see `chunk_layout`)."""
        return self._beside("_chunks")

    def split(self, name: str) -> Path:
        """The tasks of a configured split, put together for this run."""
        return self.output.with_suffix("") / "preprocessed_datasets" / f"{name}.jsonl"

    def all(self) -> tuple[Path, ...]:
        """The files of a run."""
        return (self.output, self.materialized_inputs, self.failures, self.manifest, self.aggregate_metrics, self.done)

    def existing(self) -> list[Path]:
        """What an earlier run left under these names, its chunks included if it was planned in chunks."""
        found = [path for path in self.all() if path.exists()]
        return [*found, self.chunks] if (self.chunks / "plan.json").exists() else found

    def remove(self) -> None:
        """Delete an earlier run. What says that it is finished goes first."""
        for path in reversed(self.existing()):
            if path == self.chunks:
                # Out of the way at once: a worker that still runs must find nothing it could go on with.
                shutil.rmtree(path.rename(path.with_name(f"{path.name}.removed")))
            else:
                path.unlink()

    def set_aside(self) -> Path | None:
        """Move an earlier run's files into a folder of their own, so that a new run can take the names."""
        files = self.existing()
        if not files:
            return None
        number = 1
        while (folder := self._beside(f"_previous_{number}")).exists():
            number += 1
        folder.mkdir(parents=True)
        for path in files:
            path.rename(folder / path.name)
        return folder
