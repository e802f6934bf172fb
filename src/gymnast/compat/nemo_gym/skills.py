"""`nemo_gym.skills`: copies a folder of skills to where a harness expects them."""

import shutil
from pathlib import Path

from gymnast.compat.nemo_gym.errors import UnknownNameError
from gymnast.compat.nemo_gym.surface import missing_from


def stage_skills(path: str, dest_skills_dir: Path) -> None:
    """Copy the skills in `path` into a folder."""
    source = Path(path)
    if not source.is_dir():
        raise UnknownNameError(
            f"skills folder '{path}' does not exist", next="set skills.path to a folder of SKILL.md files"
        )
    dest_skills_dir.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, dest_skills_dir, dirs_exist_ok=True)


__getattr__ = missing_from("nemo_gym.skills")
