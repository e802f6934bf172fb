"""The application built from the list of commands.

Importing and building every command takes longer than many of them run, so a call builds only the one that it names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from gymnast import __version__
from gymnast.cli.click_classes import CommandGroup, GymnastCommand, old_names
from gymnast.cli.command_list import ABOUT, COMMANDS


def build_app(name: str | None = None) -> typer.Typer:
    """The application with the command `name` only; with all of them if there is no such command."""
    app = typer.Typer(
        name="gymnast",
        help=ABOUT,
        cls=CommandGroup,
        no_args_is_help=True,
        rich_markup_mode=None,  # brackets in help texts are brackets
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root_options)  # without a callback, typer would turn a single command into the application
    for word, command in COMMANDS.items():
        if name in COMMANDS and word != name:
            continue
        module = import_module(command.module if "." in command.module else f"gymnast.cli.{command.module}")
        if command.function is None:
            for registered in module.app.registered_commands:
                if not issubclass(registered.cls or object, GymnastCommand):
                    registered.cls = GymnastCommand
            app.add_typer(module.app, name=word, cls=CommandGroup, rich_help_panel=command.panel)
        else:
            settings = {"cls": old_names(**command.old_names), "rich_help_panel": command.panel, **command.settings}
            app.command(word, **settings)(getattr(module, command.function))
    return app


def _root_options(
    *,
    version: Annotated[bool, typer.Option("--version", "-V", is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    if version:
        print(f"gymnast {__version__}")
        raise typer.Exit


def print_version() -> None:
    """Print the version."""
    print(__version__)
