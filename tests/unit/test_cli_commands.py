"""A call builds the command that it names and no other; alone it is the same as among all."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from gymnast.cli.commands import build_app


def commands_of(name: str | None) -> dict[str, Any]:
    command: Any = typer.main.get_command(build_app(name))
    return dict(command.commands)


@pytest.mark.parametrize("name", ["status", "check", "ctl", "version"])
def test_a_call_builds_the_command_that_it_names(name: str) -> None:
    assert set(commands_of(name)) == {name}


@pytest.mark.parametrize("name", [None, "--help", "colect"])
def test_help_and_typing_errors_need_all_commands(name: str | None) -> None:
    assert {"collect", "submit", "version", "check", "train"} <= set(commands_of(name))


def test_a_command_is_the_same_alone_as_among_all() -> None:
    for name, command in commands_of(None).items():
        alone = commands_of(name)[name]
        assert alone.help == command.help
        assert [param.opts for param in alone.params] == [param.opts for param in command.params]
        assert list(getattr(alone, "commands", ())) == list(getattr(command, "commands", ()))


def leaves(commands: dict[str, Any]) -> list[Any]:
    return [leaf for command in commands.values() for leaf in leaves(getattr(command, "commands", {})) or [command]]


def test_old_names_of_options_mean_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    renamed = [command for command in leaves(commands_of(None)) if getattr(command, "old_names", None)]
    assert len(renamed) >= 10
    for command in renamed:
        options = {option for param in command.params for option in param.opts}
        for old, new in command.old_names.items():
            assert new in options
            assert old not in options
            assert command._current(f"{old}=1") == f"{new}=1"
            assert f"warning: {old} is now {new}" in capsys.readouterr().err
