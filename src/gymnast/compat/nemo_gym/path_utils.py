"""`nemo_gym.path_utils`: the files that belong to an output file."""

from pathlib import Path

from gymnast.compat.nemo_gym.surface import missing_from
from gymnast.store.paths import RunPaths


def failures_path_for(output_fpath: Path) -> Path:
    """The file of failed attempts."""
    return RunPaths(Path(output_fpath)).failures


__getattr__ = missing_from("nemo_gym.path_utils")
