"""`nemo_gym.path_utils`: the names of files beside an output, by those of the store."""

from pathlib import Path

from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.store.paths import RunPaths

__all__ = [
    "failures_path_for",
]


def failures_path_for(output_fpath: Path) -> Path:
    """Where the failed attempts of an output are."""
    return RunPaths(Path(output_fpath)).failures


__getattr__ = missing_from("nemo_gym.path_utils")
