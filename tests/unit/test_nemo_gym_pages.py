"""The comparison with NeMo Gym's commands has no gaps, says what our commands print, and fits whatever was tried."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gymnast.compat import ng
from gymnast.compat.gym_entry import run_gym

ROOT = Path(__file__).parents[2]
Said = pytest.CaptureFixture[str]


def load_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nemo_gym_pages", ROOT / "docs" / "nemo_gym_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES: Any = load_pages()
ROWS = PAGES.compare_commands()
FACTS = json.loads(PAGES.FACTS.read_text())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_command_option_and_field_of_nemo_gym_is_there() -> None:
    assert len(ROWS) > 300
    assert not [row for row in ROWS if row.verdict == "missing"]
    assert all(row.note for row in ROWS if row.verdict == "different")


def test_the_migration_page_names_the_test_of_each_invariant() -> None:
    tests = (ROOT / "tests" / "e2e" / "test_rollout_invariants.py").read_text()
    page = (ROOT / "docs" / "how-to" / "migrate-from-nemo-gym.md").read_text()
    names = re.findall(r"^def (test_\w+)", tests, re.MULTILINE)
    assert len(names) == 8
    assert re.findall(r"\| `(test_\w+)` \|$", page, re.MULTILINE) == names


def test_every_executable_of_nemo_gym_is_installed() -> None:
    files = (ROOT / "pyproject.toml", ROOT / "distributions" / "nemo-gym-surface" / "pyproject.toml")
    scripts = {name for file in files for name in tomllib.loads(file.read_text())["project"]["scripts"]}
    assert set(FACTS["executables"]) <= scripts
    assert all(name in ng.SAME_AS or name in {"ng_help", "ng_version", "ng_reinstall"} for name in names_of_ng())
    for name in names_of_ng():
        tokens = FACTS["commands"][name].get("same_as", "gym").split()[1:3]
        assert ng.SAME_AS.get(name, tuple(tokens)) == tuple(tokens)


def names_of_ng() -> list[str]:
    return [name for name in FACTS["commands"] if name.startswith("ng_")]


def test_every_note_is_about_something() -> None:
    known = {f"{row.command} {row.option}".strip() for row in ROWS}
    assert json.loads(PAGES.NOTES.read_text()).keys() <= known


@pytest.mark.parametrize("name", sorted(set(FACTS["commands"]) - {"gym"}))
def test_every_command_has_help(name: str, capsys: Said) -> None:
    if name.startswith("gym "):
        assert run_gym([*name.split()[1:], "--help"]) == 0
        listed = capsys.readouterr().out
        spelled = [each["option"] for each in FACTS["commands"][name]["options"] if not each.get("positional")]
        assert all(option in listed for option in spelled)
    else:
        assert name in ng.COMMANDS


def test_the_page_of_what_does_not_work_fits_any_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"kind": "suite", "name": "resources_servers/a", "verdict": "passes", "reason": "", "passed": 3, "total": 3},
        {
            "kind": "suite",
            "name": "resources_servers/b",
            "verdict": "needs",
            "reason": "A GPU.",
            "passed": 0,
            "total": 4,
        },
        {"kind": "suite", "name": "resources_servers/c", "verdict": "needs", "reason": "A GPU."},
        {"kind": "config", "name": "a.yaml", "verdict": "fails", "reason": "it says `x | y`"},
    ]
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps({"schema_version": 1, "nemo_gym": "0.5.1", "rows": rows}))
    monkeypatch.setattr(PAGES, "RUNS", runs)
    page = PAGES.what_does_not_work_page()
    assert "| suites (3 of 7 tests or rows) | 3 | 1 | 0 | 0 | 0 | 2 | 0 |" in page
    assert "| `resources_servers/b`, `resources_servers/c` | needs | A GPU. |" in page
    assert "| `a.yaml` | fails | It says `x &#124; y`. |" in page
    assert "`resources_servers/a`" not in page
    runs.unlink()
    assert "| commands, options and fields |" in PAGES.what_does_not_work_page()


def test_rows_of_runs_have_known_kinds_and_verdicts() -> None:
    for row in PAGES.read_runs():
        assert row["kind"] in PAGES.KINDS
        assert row["verdict"] in PAGES.VERDICTS
        assert row["reason"] or row["verdict"] == "passes"
