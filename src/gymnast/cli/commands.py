"""The table of commands, and the application built from it.

Importing and building every command takes longer than many of them run, so a call builds only the one that it names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from gymnast import __version__
from gymnast.cli.click_classes import CommandGroup, GymnastCommand, Panel, old_names

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Command(NamedTuple):
    """Where a command is defined, and what typer needs to know about it."""

    panel: Panel
    module: str
    function: str = "command"
    old_names: Mapping[str, str] = {}
    settings: Mapping[str, Any] = {}


class _Group(NamedTuple):
    """A command with subcommands: the `app` of its module."""

    panel: Panel


_OPEN_ENDED: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
_COMMANDS: Final[dict[str, _Command | _Group]] = {
    "demo": _Command(Panel.RUN, "demo", old_names={"tasks": "tasks_per_level"}),
    "collect": _Command(Panel.RUN, "collect"),
    "eval": _Command(Panel.RUN, "evaluate"),
    "reverify": _Command(Panel.RUN, "reverify"),
    "serve": _Command(Panel.RUN, "serve"),
    "ctl": _Command(Panel.RUN, "run_status", "ctl"),
    "status": _Command(Panel.LOOK, "status"),
    "report": _Command(Panel.LOOK, "report"),
    "profile": _Command(Panel.LOOK, "profile", old_names={"partial": "allow_partial"}),
    "compare": _Command(Panel.LOOK, "compare"),
    "env": _Group(Panel.PREPARE),
    "config": _Group(Panel.PREPARE),
    "data": _Group(Panel.PREPARE),
    "check": _Group(Panel.PREPARE),
    "submit": _Command(Panel.CLUSTER, "submit", old_names={"at_once": "max_running"}),
    "worker": _Command(Panel.CLUSTER, "worker"),
    "logs": _Command(Panel.CLUSTER, "logs"),
    "cancel": _Command(Panel.CLUSTER, "cancel"),
    "merge": _Command(Panel.CLUSTER, "merge", old_names={"partial": "allow_partial"}),
    "train": _Group(Panel.TRAIN),
    "tokens": _Group(Panel.TRAIN),
    "curriculum": _Command(
        Panel.TRAIN,
        "curriculum",
        old_names={
            "pass_at": "pass_threshold",
            "batch": "batch_size",
            "from_": "start_pass_rate",
            "to": "end_pass_rate",
        },
    ),
    "doctor": _Command(Panel.DEBUG, "doctor", old_names={"data": "input"}),
    "bundle": _Command(Panel.DEBUG, "bundle", old_names={"log": "logs"}),
    "version": _Command(Panel.DEBUG, "commands", "print_version"),
    "gym": _Command(
        Panel.NEMO_GYM,
        "gym",  # its commands have their own help
        settings={"add_help_option": False, "context_settings": {**_OPEN_ENDED, "help_option_names": []}},
    ),
    "nemo-gym-rollouts": _Command(Panel.NEMO_GYM, "nemo_gym_rollouts", settings={"context_settings": _OPEN_ENDED}),
}


def build_app(name: str | None = None) -> typer.Typer:
    """The application with the command `name` only; with all of them if there is no such command."""
    app = typer.Typer(
        name="gymnast",
        help="Collect, score and explain the rollouts of language-model agents in RL environments.",
        cls=CommandGroup,
        no_args_is_help=True,
        rich_markup_mode=None,  # brackets in help texts are brackets
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_accept_no_options)  # without a callback, typer would turn a single command into the application
    for word, command in _COMMANDS.items():
        if name in _COMMANDS and word != name:
            continue
        if isinstance(command, _Group):
            group = import_module(f"gymnast.cli.{word}").app
            for registered in group.registered_commands:
                if not issubclass(registered.cls or object, GymnastCommand):
                    registered.cls = GymnastCommand
            app.add_typer(group, name=word, rich_help_panel=command.panel)
        else:
            function = getattr(import_module(f"gymnast.cli.{command.module}"), command.function)
            settings = {"cls": old_names(**command.old_names), "rich_help_panel": command.panel, **command.settings}
            app.command(word, **settings)(function)
    return app


def _accept_no_options() -> None:
    pass


def print_version() -> None:
    """Print the version."""
    print(__version__)
