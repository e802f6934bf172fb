"""`gymnast env list` and `gymnast gym list environments`: every environment, its purpose, and whether it can run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymnast.checks import catalog
from gymnast.checks.catalog import CatalogEntry, list_environments, missing_packages
from gymnast.cli.main import main
from gymnast.compat.gym_entry import run_gym
from gymnast.config import read_environ
from gymnast.config.roots import BUILTIN
from gymnast.errors import Problem

MINE = """
mine:
  resources_servers:
    mine:
      entrypoint: app.py
      domain: math
      description: sums of my own
      needs: [sandbox]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalog, "_find_sandbox_problem", lambda: None)
    return tmp_path


def write_environment(folder: Path, name: str, text: str, *, entry: bool = True) -> None:
    configs = folder / "resources_servers" / name / "configs"
    configs.mkdir(parents=True)
    (configs / f"{name}.yaml").write_text(text)
    if entry:
        (configs.parent / "app.py").write_text("")


def entries(*search_dirs: Path) -> dict[str, CatalogEntry]:
    return {entry.name: entry for entry in list_environments(read_environ({}), search_dirs)}


def test_every_shipped_environment_has_a_purpose_and_data() -> None:
    shipped = entries()
    assert {"mcqa", "gymnasium/frozen_lake", "blackjack", "math_with_judge/dapo17k", "verifiers"} <= shipped.keys()
    for entry in shipped.values():
        assert entry.is_builtin, entry
        assert entry.purpose, entry
        assert entry.domain, entry
        assert any(dataset.is_present for dataset in entry.data), entry
    assert shipped["verifiers"].own_packages


def test_the_extras_of_shipped_environments_are_those_that_their_code_requires() -> None:
    for folder in (BUILTIN / "resources_servers").iterdir():
        code = "".join(path.read_text() for path in folder.glob("*.py"))
        required = set(re.findall(r'require_package\(.*extra="(\w+)"', code))
        configs = [yaml.safe_load(path.read_text()) for path in folder.glob("configs/*.yaml")]
        needs = {
            need
            for config in configs
            for block in config.values()
            if isinstance(block, dict)
            for server in block.get("resources_servers", {}).values()
            for need in server.get("needs", ())
        }
        assert required <= needs, folder.name


def test_environments_of_a_search_dir_come_with_their_purpose(here: Path) -> None:
    write_environment(here / "else", "mine", MINE)
    entry = entries(here / "else")["mine"]
    assert (entry.purpose, entry.domain, entry.needs) == ("sums of my own", "math", ("sandbox",))
    assert not entry.is_builtin
    assert entry.problem is None


@pytest.mark.parametrize(
    ("text", "entry_exists", "why"),
    [
        (MINE, False, "has no 'app.py'"),
        (MINE.replace("math", "maths"), True, "unknown domain 'maths'"),
        (MINE.replace("[sandbox]", "[math]"), True, "not installed: math-verify"),
        (MINE.replace("description", "extra: ???\n      description"), True, "extra"),
        ("a: [", True, "not valid YAML"),
    ],
)
def test_what_cannot_run_says_why(
    here: Path, monkeypatch: pytest.MonkeyPatch, text: str, *, entry_exists: bool, why: str
) -> None:
    monkeypatch.setattr(catalog, "_is_installed", lambda _: False)
    write_environment(here, "mine", text, entry=entry_exists)
    problem = entries()["mine"].problem
    assert problem is not None
    assert why in problem


def test_a_missing_sandbox_is_a_reason(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_sandbox = Problem("the sandbox needs bubblewrap, which is not installed", next="install bubblewrap")
    monkeypatch.setattr(catalog, "_find_sandbox_problem", lambda: no_sandbox)
    write_environment(here, "mine", MINE)
    entry = entries()["mine"]
    assert "needs bubblewrap" in (entry.problem or "")
    assert entry.next == "install bubblewrap"


def test_packages_of_an_extra_are_looked_up() -> None:
    assert missing_packages("structured_outputs") == []
    assert missing_packages("no_such_extra") == []


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["env", "list", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr()


def test_the_list_is_printed_as_text_and_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_environment(here, "mine", MINE.replace("math", "maths"))
    out, _ = listed(capsys)
    assert "mcqa " in out
    assert "multiple-choice questions" in out
    assert "cannot run here: " in out
    rows = {row["name"]: row for row in json.loads(listed(capsys, "--json")[0])}
    assert rows["mcqa"]["can_run"] is True
    assert rows["mcqa"]["data"][0]["is_present"] is True
    assert rows["mine"]["can_run"] is False
    assert listed(capsys, "multiple-choice")[0].startswith("mcqa ")
    assert "no environment mentions 'zebra'" in listed(capsys, "zebra")[1]
    assert "no such folder" in listed(capsys, "--search-dir", "nowhere", "mcqa")[1]


def test_gym_lists_shipped_environments_with_their_purpose(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_environment(here / "else", "mine", MINE)
    assert run_gym(["list", "environments", "--search-dir", "else"]) == 0
    shown = capsys.readouterr().out
    for line in (r"mcqa +knowledge +multiple-choice questions", r"blackjack +games +blackjack, one hand an episode"):
        assert re.search(rf"^resources_servers/{line}$", shown, re.MULTILINE)
    assert run_gym(["list", "resources-servers", "--search-dir", "else"]) == 0  # it has no dataset yet
    assert re.search(r"^mine +math +sums of my own$", capsys.readouterr().out, re.MULTILINE)
    assert run_gym(["list", "environments", "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert all(row["description"] and row["kind"] == "environment" for row in rows)
