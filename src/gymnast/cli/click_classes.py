"""How the commands parse and list themselves.

Old option names still work, numbers that no option can mean are rejected, and commands are listed by purpose.
"""

from __future__ import annotations

import math
import sys
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from gymnast.cli.command_list import PANELS

_WHOLE: Final = 10_000  # characters: no summary is cut

_MAX_NUMBER: Final = 10**15
"""Larger than any count, size or time in seconds that a run can have."""


class GymnastCommand(TyperCommand):
    """A command that also takes old names of options, and underscores in place of hyphens; help shows neither."""

    old_names: ClassVar[dict[str, str]] = {}

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return super().make_context(info_name, args, parent, token_normalize_func=_hyphenate, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, [self._current(argument) for argument in args])
        for param in self.get_params(ctx):
            _check_number(ctx, param.opts[0] if param.opts else str(param.name), ctx.params.get(param.name))
        return rest

    def _current(self, argument: str) -> str:
        name, equals, value = argument.partition("=")
        if name in self.old_names:
            print(f"warning: {name} is now {self.old_names[name]}", file=sys.stderr)
        return self.old_names.get(name, name) + equals + value


def old_names(**names: str) -> type[TyperCommand]:
    """A command class for renamed options: `old_names(old="new")` lets `--old` mean `--new`."""
    spellings = {_option(old): _option(new) for old, new in names.items()}
    return type("_RenamedCommand", (GymnastCommand,), {"old_names": spellings})


def _check_number(ctx: Any, option: str, value: Any) -> None:
    """Reject NaN, infinities and absurdly large numbers, which the range of an option lets pass."""
    if isinstance(value, float) and not math.isfinite(value):
        raise typer.BadParameter(f"expected a finite number, got {value}", ctx=ctx, param_hint=option)
    if isinstance(value, (int, float)) and abs(value) > _MAX_NUMBER:
        raise typer.BadParameter(f"expected at most {_MAX_NUMBER:,}, got {value:.3g}", ctx=ctx, param_hint=option)


def _hyphenate(name: str) -> str:
    return name.replace("_", "-")


def _option(name: str) -> str:
    return f"--{name.strip('_').replace('_', '-')}"


class CommandGroup(TyperGroup):
    """A group that lists its commands with their whole summaries, under headings if they have a `rich_help_panel`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        width = max(map(len, commands))
        for panel in (None, *PANELS):
            rows = [
                (f"{name:<{width}}", command.get_short_help_str(_WHOLE))
                for name, command in commands.items()
                if command is not None and not command.hidden and _panel(command) == panel
            ]
            if rows:
                with formatter.section(panel or "Commands"):
                    formatter.write_dl(rows)


def _panel(command: Any) -> str | None:
    panel = getattr(command, "rich_help_panel", None)
    return panel if panel in PANELS else None
