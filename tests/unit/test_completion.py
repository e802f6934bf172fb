"""What a Tab offers: commands, options, environments, configs, runs, override keys, files; and never a traceback."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

import pytest

from gymnast.cli import complete_values
from gymnast.cli.complete import TABLE, complete, print_candidates, split_line


def offered(*words: str) -> list[str]:
    return [candidate for candidate, _ in complete(words).rows]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_table_is_that_of_the_commands() -> None:
    script = Path(__file__).parents[2] / "docs" / "completion_table.py"
    table = runpy.run_path(str(script))["completion_table"]()
    assert json.loads(TABLE.read_text()) == json.loads(json.dumps(table)), "run docs/generate.py"


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["coll"], ["collect"]),
        (["check", "en"], ["env", "endpoint"]),
        (["--ver"], []),
        (["collect", "--model-t"], ["--model-type"]),
        (["collect", "-e", "mcq"], ["mcqa"]),
        (["collect", "-e", "gymnasium/f"], ["gymnasium/frozen_lake"]),
        (["collect", "--environment=mcq"], ["--environment=mcqa"]),
        (["collect", "--resume", "-e", "mcq"], ["mcqa"]),
        (["check", "env", "mcq"], ["mcqa"]),
        (["check", "rows", "x.jsonl", "--against", "mcq"], ["mcqa"]),
        (["collect", "--model-type", "openai"], ["openai_model"]),
        (["collect", "-c", "responses_api_models/openai_model/configs/o"],
         ["responses_api_models/openai_model/configs/openai_model.yaml"]),
        (["collect", "policy_b"], ["policy_base_url="]),
        (["collect", "-e", "mcqa", "++mcqa.resources_servers.mcqa.dom"], ["++mcqa.resources_servers.mcqa.domain="]),
        (["collect", "-e", "blackjack", "++blackjack."], ["++blackjack.resources_servers."]),
        (["collect", "-e", "mcqa", "~mcqa_"], ["~mcqa_simple_agent."]),
        (["collect", "++a=b"], []),
        (["ctl", "x.jsonl", "pa"], ["pause"]),
        (["env", "new", "x", "--kind", "s"], ["single-turn", "step"]),
        (["completion", "z"], ["zsh"]),
        (["compare", "a", "b", "c"], []),
        (["nonsense", "x"], []),
        (["collect", "-c", "/nowhere/at/all/x"], []),
        ([""], None),
    ],
)  # fmt: skip
def test_words_are_completed(words: list[str], candidates: list[str] | None) -> None:
    found = offered(*words)
    assert sorted(found) == sorted(candidates) if candidates is not None else len(found) > 20


def test_options_have_their_descriptions() -> None:
    (row,) = complete(["collect", "--num-rep"]).rows
    assert row == ("--num-repeats", "Rollouts per task. [default: 1]")


def test_runs_below_the_folder_are_offered_for_a_run(here: Path) -> None:
    (here / "runs" / "deep").mkdir(parents=True)
    (here / ".hidden").mkdir()
    for name in ("runs/a_run.json", "runs/deep/b_run.json", ".hidden/c_run.json"):
        (here / name).write_text("{}")
    (here / "p_chunks").mkdir()
    assert offered("profile", "") == ["p.jsonl", "runs/a.jsonl", "runs/deep/b.jsonl"]
    assert offered("status", "runs/d") == ["runs/deep/b.jsonl"]
    assert offered("compare", "runs/a.jsonl", "runs/a") == ["runs/a.jsonl"]


def test_without_a_run_files_are_offered(here: Path) -> None:
    (here / "theirs.jsonl").write_text("")
    (here / "folder").mkdir()
    assert offered("profile", "") == ["folder/", "theirs.jsonl"]


def test_a_search_ends_in_a_folder_with_very_many_files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complete_values, "_MAX_ENTRIES", 5)
    for number in range(20):
        (here / f"{number}").mkdir()
    (here / "near_run.json").write_text("")
    (here / "0" / "far_run.json").write_text("")
    assert "near.jsonl" in offered("status", "")


def test_environments_of_other_folders_are_offered(here: Path) -> None:
    for folder in ("resources_servers/mine", "else/resources_servers/theirs"):
        (here / folder / "configs").mkdir(parents=True)
        (here / folder / "configs" / f"{Path(folder).name}.yaml").write_text("mine:\n  a:\n    - x: 1\n      y: 2\n")
    assert "mine" in offered("collect", "-e", "m")
    assert offered("collect", "--search-dir", "else", "-e", "the") == ["theirs"]
    assert offered("collect", "-e", "mine", "++mine.") == ["++mine.a="]


def test_an_unreadable_folder_offers_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert offered("profile", "x") == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gymnast ", ["gymnast", ""]),
        ("gymnast  co", ["gymnast", "co"]),
        (r"gymnast -c my\ d", ["gymnast", "-c", "my d"]),
        ("gymnast -c 'my d", ["gymnast", "-c", "my d"]),
        ("gymnast -c \"a'b", ["gymnast", "-c", "a'b"]),
        ("gymnast '' x", ["gymnast", "", "x"]),
    ],
)
def test_lines_are_split_as_a_shell_does(line: str, words: list[str]) -> None:
    assert split_line(line) == words


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["bash", "gymnast collect --environment=mcq", " =:"], ["words", "mcqa"]),
        (["bash", "gymnast collect --environment=mcq", " "], ["words", "--environment=mcqa"]),
        (["zsh", "collect", "--environment=mcq"], ["words", "--environment=mcqa"]),
        (["fish", "coll"], ["words", "collect\tCollect scored rollouts for a dataset."]),
        (["bash"], None),
        ([], None),
    ],
)
def test_each_shell_gets_what_it_inserts(
    arguments: list[str], lines: list[str] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    print_candidates(arguments)
    out = capsys.readouterr().out.splitlines()
    assert out == lines if lines is not None else out[0] == "words"


def test_keys_of_a_config_are_read_without_a_parser() -> None:
    text = """
# comment: no
a:
  b: 1
  text: |
    c: 2
  items:
    - d: 3
      e: 4
  f: {g: 1}
"quoted": 1
h: x:y
"""
    assert list(complete_values.yaml_keys(text.splitlines())) == ["a", "a.b", "a.text", "a.items", "a.f", "h"]
