"""The names of a run's files, all derived from the output file `dir/x.jsonl`."""

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

    def _sibling(self, suffix: str) -> Path:
        return self.output.with_name(self.output.stem + suffix)

    @property
    def materialized_inputs(self) -> Path:
        return self._sibling("_materialized_inputs.jsonl")

    @property
    def failures(self) -> Path:
        return self._sibling("_failures.jsonl")

    @property
    def manifest(self) -> Path:
        return self._sibling("_run.json")

    @property
    def aggregate_metrics(self) -> Path:
        return self._sibling("_aggregate_metrics.json")

    @property
    def done(self) -> Path:
        return self.output.with_name(self.output.name + ".done")

    @property
    def lock(self) -> Path:
        return self._sibling(".lock")

    @property
    def socket(self) -> Path:
        return self._sibling(".sock")

    @property
    def logs(self) -> Path:
        return self._sibling("_logs")

    @property
    def tracking(self) -> Path:
        """The ids of this run in experiment trackers."""
        return self._sibling("_tracking.json")

    @property
    def events(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self._sibling("_tensorboard")

    @property
    def chunks(self) -> Path:
        """The folder of a chunked run (see `chunk_layout`)."""
        return self._sibling("_chunks")

    def split(self, name: str) -> Path:
        """The tasks of a configured split, assembled for this run."""
        return self.output.with_suffix("") / "preprocessed_datasets" / f"{name}.jsonl"

    def all(self) -> tuple[Path, ...]:
        return (self.output, self.materialized_inputs, self.failures, self.manifest, self.aggregate_metrics, self.done)

    def existing_files(self) -> list[Path]:
        """The files of an earlier run under these names, including its chunks if it has any."""
        files = [path for path in self.all() if path.exists()]
        return [*files, self.chunks] if (self.chunks / "plan.json").exists() else files

    def remove(self) -> None:
        """Delete an earlier run, starting with the marker that it is finished."""
        for path in reversed(self.existing_files()):
            if path == self.chunks:
                # Renamed first, so that a worker that is still running finds nothing to continue.
                shutil.rmtree(path.rename(path.with_name(f"{path.name}.removed")))
            else:
                path.unlink()

    def set_aside(self) -> Path | None:
        """Move an earlier run's files to a new folder, so that a new run can take the names."""
        files = self.existing_files()
        if not files:
            return None
        number = 1
        while (folder := self._sibling(f"_previous_{number}")).exists():
            number += 1
        folder.mkdir(parents=True)
        for path in files:
            path.rename(folder / path.name)
        return folder
