"""`gymnast --help` lists every command by purpose, whole, and loads none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from gymnast import __version__
from gymnast.cli.command_list import COMMANDS, PANELS
from gymnast.cli.commands import build_app
from gymnast.cli.main import main
from gymnast.cli.root_help import help_lines, stored_help, wrap


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code, *capsys.readouterr()


def test_the_summary_of_a_command_is_the_first_line_of_its_help() -> None:
    application: Any = typer.main.get_command(build_app())
    summaries = {name: command.help.strip().split("\n")[0] for name, command in application.commands.items()}
    assert summaries == {name: command.summary for name, command in COMMANDS.items()}


@pytest.mark.parametrize("width", [20, 60, 80, 100])
def test_no_description_is_cut(width: int) -> None:
    words = " ".join(help_lines(width)).split()
    text = " ".join(words)
    for name, command in COMMANDS.items():
        assert f"{name} {command.summary}" in text
    assert "..." not in text
    assert width < 60 or all(len(line) <= width for line in help_lines(width))


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_help_lists_every_command_under_a_heading(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert [line for line in out.splitlines() if line.endswith(":")] == [f"{panel}:" for panel in ("Options", *PANELS)]
    assert all(f"\n  {name} " in out for name in COMMANDS)


def test_groups_list_their_commands_whole(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "env", "--help")
    assert code == 0
    assert "whether they can run here." in " ".join(out.split())
    assert "..." not in out.partition("Commands:")[2]


def test_the_version_is_an_option_and_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"gymnast {__version__}\n", "")
    assert run(capsys, "-V") == (0, f"gymnast {__version__}\n", "")
    assert run(capsys, "version") == (0, f"{__version__}\n", "")


def test_help_may_be_written_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "help") == run(capsys, "--help")
    assert run(capsys, "help", "env", "list") == run(capsys, "env", "list", "--help")


def test_an_unknown_command_or_option_suggests_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "colect")
    assert (code, "'collect'" in err) == (2, True)
    code, _, err = run(capsys, "--verison")
    assert (code, "--version" in err) == (2, True)
    code, _, err = run(capsys, "completion", "tcsh")
    assert (code, "bash" in err, "zsh" in err) == (2, True, True)


def test_words_longer_than_the_line_stay_whole() -> None:
    assert wrap("a verylongword b", 4) == ["a", "verylongword", "b"]


def test_the_help_of_a_command_is_stored_as_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["collect"], ["env", "list"], ["check"]):
        code, out, _ = run(capsys, *words, "--help")
        application: Any = typer.main.get_command(build_app(words[0]))
        application([*words, "-h"], prog_name="gymnast", standalone_mode=False)
        assert (code, out.split()) == (0, capsys.readouterr().out.split()), "run docs/generate.py"


def test_help_that_is_not_stored_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert stored_help(["collect", "-o", "x", "--help"]) is None
    assert stored_help(["colect", "--help"]) is None
    assert (stored_help(["collect", "-h"]) or "").startswith("Usage: gymnast collect ")
    broken = tmp_path / "help.json"
    broken.write_text("<<<<<<< a conflict")
    monkeypatch.setattr("gymnast.cli.root_help.HELP_FILE", broken)
    assert stored_help(["collect", "-h"]) is None
