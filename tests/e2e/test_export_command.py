"""`gymnast export` as a command: its JSON, its errors, and an upload that is private."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.export_runs import rollout, write_run
from tests.helpers.upload_hub import running_upload_hub


def gymnast(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gymnast.cli.main", "export", *arguments]
    environment = {**os.environ, **env}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_command_exports_explains_and_uploads(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    write_run(tmp_path, [rollout(task, n, float(n)) for task in range(4) for n in range(2)])
    wrong = gymnast(tmp_path, "run.jsonl", "-f", "sft", "-o", "out", "--where", "rewrd > 0")
    assert wrong.returncode == 2
    assert "there is no column 'rewrd'" in wrong.stderr
    assert not (tmp_path / "out").exists()
    with running_upload_hub() as hub:
        env = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "t", "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "home")}
        options = ("run.jsonl", "-f", "sft", "-o", "out", "--where", "reward > 0", "--push", "org/d", "--json")
        done = gymnast(tmp_path, *options, **env)
        assert done.returncode == 0, done.stderr
        data = json.loads(done.stdout)
        assert data["counts"]["rows"] == 4
        assert data["counts"]["left_out"] == {"where": 4}
        assert data["pushed"] == f"{hub.url}/datasets/org/d"
        assert hub.visibility == {"org/d": "private"}
        assert hub.commits == ["train.jsonl", "export.json", "README.md"]
        again = gymnast(tmp_path, *options, **env)
        assert again.returncode == 0, again.stderr
        assert len(hub.commits) == 3
        assert json.loads(again.stdout)["unchanged"] is True
        hub.token = "of env.yaml"
        other = ["org/e" if option == "org/d" else option for option in options]
        refused = gymnast(tmp_path, *other, **env)
        assert (refused.returncode, "a token that may write to 'org/e'" in refused.stderr) == (2, True)
        (tmp_path / "env.yaml").write_text("hf_token: of env.yaml\n")
        assert gymnast(tmp_path, *other, **env).returncode == 0
