"""`gym env test NAME` and `publish` of an environment made by NeMo Gym: its own cases decide, and are updated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gymnast.compat.gym_entry import run_gym
from tests.helpers.manifest_checkout import CASES, write_cases, write_checkout, write_manifest

Said = pytest.CaptureFixture[str]
STALE = [*CASES[:3], {**CASES[3], "expected_reward": 0.5}]


@pytest.fixture(autouse=True)
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_checkout(tmp_path)


def test_the_cases_of_the_server_are_run_updated_and_published(tmp_path: Path, manifest: Path, capsys: Said) -> None:
    assert run_gym(["env", "test", "quiz", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(case["name"], case["observed_rewards"]) for case in report["cases"]] == [
        ("right", [1.0]), ("wrong", [0.0]), ("none", []), ("twice", [1.0, 1.0]),
    ]  # fmt: skip
    assert report["manifest_path"] == str(manifest)
    cases = write_cases(tmp_path, STALE)
    assert report["fixture_path"] == str(cases)
    assert run_gym(["env", "test", "quiz"]) == 1
    assert "Case 'twice' reward mismatch: expected 0.5, observed 1.0" in capsys.readouterr().err
    assert run_gym(["env", "publish", "quiz"]) == 1
    assert run_gym(["env", "test", "quiz", "--update-expected"]) == 0
    assert [json.loads(line) for line in cases.read_text().splitlines()] == CASES
    capsys.readouterr()
    assert run_gym(["env", "publish", "quiz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verifier_cases"] == 4


def test_a_server_that_cannot_be_imported_is_reported(tmp_path: Path, capsys: Said) -> None:
    app = tmp_path / "resources_servers" / "quiz" / "app.py"
    app.write_text(app.read_text() + "\nimport no_such_module_of_quiz\n")
    assert run_gym(["env", "test", "quiz"]) == 1
    assert "no_such_module_of_quiz" in capsys.readouterr().err
    write_manifest(tmp_path, agent_server="other")
    assert run_gym(["env", "test", "quiz"]) == 1
    assert "the manifest does not match the config" in capsys.readouterr().err


def test_without_a_manifest_our_own_cases_are_updated(tmp_path: Path, manifest: Path, capsys: Said) -> None:
    """The cases of an environment of ours, which `gymnast check env` runs."""
    assert run_gym(["env", "init", "--resources-server", "riddle"]) == 0
    data = tmp_path / "resources_servers" / "riddle" / "data"
    rows = [json.loads(line) for line in (data / "verifier_cases.jsonl").read_text().splitlines()]
    wrong = [{**row, "expected_reward": 0.75} if row["kind"] == "determinism" else row for row in rows]
    (data / "verifier_cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in wrong))
    name = "resources_servers/riddle"
    assert run_gym(["env", "test", name]) == 1
    assert run_gym(["env", "test", "--update-expected"]) == 2
    capsys.readouterr()
    assert run_gym(["env", "test", name, "--update-expected"]) == 0
    assert "updated" in capsys.readouterr().err
    again = [json.loads(line) for line in (data / "verifier_cases.jsonl").read_text().splitlines()]
    assert [row.get("expected_reward") for row in again] == [row.get("expected_reward") for row in rows]
