"""The table of commands, and the application built of them.

Importing and building every command takes longer than many of them run, so a call builds the one that it names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from gymnast import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Command(NamedTuple):
    """Where a command is, and what typer needs to know of it."""

    module: str
    function: str = "command"
    settings: Mapping[str, Any] = {}


_PASSED_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
_COMMANDS: Final = {
    "collect": _Command("collect"),
    "submit": _Command("submit"),
    "cancel": _Command("cancel"),
    "logs": _Command("logs"),
    "reverify": _Command("reverify"),
    "profile": _Command("profile"),
    "compare": _Command("compare"),
    "curriculum": _Command("curriculum"),
    "report": _Command("report"),
    "serve": _Command("serve"),
    "status": _Command("status"),
    "ctl": _Command("run_status", "ctl"),
    "worker": _Command("worker"),
    "merge": _Command("merge"),
    "bundle": _Command("bundle"),
    "doctor": _Command("doctor"),
    "demo": _Command("demo"),
    "nemo-gym-rollouts": _Command("nemo_gym_rollouts", settings={"context_settings": _PASSED_ON}),
    "gym": _Command(
        "gym",  # it has many commands, each with its own help
        settings={"add_help_option": False, "context_settings": {**_PASSED_ON, "help_option_names": []}},
    ),
    "version": _Command("commands", "print_version"),
}
_GROUPS: Final = ("check", "config", "data", "env", "tokens", "train")


def build_app(name: str | None = None) -> typer.Typer:
    """The application with the command `name`; with all commands unless there is one of that name."""
    app = typer.Typer(
        name="gymnast",
        help="Collect, score and explain the rollouts of language-model agents in RL environments.",
        no_args_is_help=True,
        rich_markup_mode=None,  # brackets in help texts are brackets
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_accept_no_options)  # without one, typer makes an application of one command that command
    is_known = name in {*_COMMANDS, *_GROUPS}
    for word, command in _COMMANDS.items():
        if word == name or not is_known:
            function = getattr(import_module(f"gymnast.cli.{command.module}"), command.function)
            app.command(word, **command.settings)(function)
    for word in _GROUPS:
        if word == name or not is_known:
            app.add_typer(import_module(f"gymnast.cli.{word}").app, name=word)
    return app


def _accept_no_options() -> None:
    pass


def print_version() -> None:
    """Print the version."""
    print(__version__)
