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
