"""The parser of `gymnast gym …`: turns its words and long options into the arguments of the `ng_` commands.

Every option sets a key (`--concurrency 8` sets `num_samples_in_parallel`) or selects a config file. One table has all
of them; an option or command that is not in it is an error with a suggestion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.compat import ng_listing
from gymnast.compat.gym_table import COMMANDS, SHORT, GymCommand, Option
from gymnast.compat.ng_arguments import FieldError, NgArguments
from gymnast.errors import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.config.roots import Roots

_SELECTORS: Final = {
    "@benchmark": "benchmarks",
    "@environment": "environments",
    "@resources_server": "resources-servers",
}


def translate(words: Sequence[str], roots_of: Any) -> tuple[GymCommand, NgArguments]:
    """Parse a command line into a command and its arguments. `roots_of` makes roots out of search folders."""
    name, rest = _find_command(words)
    command = COMMANDS[name]
    parser = _Parser(name, command)
    parser.read(rest)
    return command, parser.arguments(roots_of(tuple(parser.search_dirs)))


def list_commands() -> Iterator[str]:
    """One line per command."""
    for name, command in COMMANDS.items():
        yield f"gymnast gym {' '.join(name):<24} {command.about}"


def describe_command(words: Sequence[str]) -> Iterator[str]:
    """The help of a command."""
    name, _ = _find_command(words)
    command = COMMANDS[name]
    yield f"gymnast gym {' '.join(name)}: {command.about}"
    yield ""
    for option, meaning in command.options.items():
        value = "" if meaning.convert is bool or meaning.key.startswith("!") else " VALUE"
        yield f"  {option + value:<28} {meaning.description}"
    yield "  +key=value                   Hydra-style settings, as for the ng_ commands; they override options"


def _find_command(words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    for length in (2, 1):
        name = tuple(words[:length])
        if name in COMMANDS:
            return name, list(words[length:])
    unknown = " ".join(word for word in words[:2] if not word.startswith(("-", "+")))
    known = [" ".join(name) for name in COMMANDS]
    raise FieldError(f"unknown command 'gym {unknown}'" if unknown else "missing command", next=suggest(unknown, known))


@dataclass
class _Parser:
    """Reads the words of a command."""

    name: tuple[str, ...]
    command: GymCommand
    words: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    selected: list[tuple[str, str]] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    search_dirs: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values.update(self.command.preset)

    def read(self, rest: list[str]) -> None:
        positionals = list(self.command.positionals)
        waiting = iter(rest)
        for word in waiting:
            if word.startswith("-"):
                self._option(word, waiting)
            elif word.startswith(("+", "~")) or "=" in word:
                self.words.append(word)
            elif positionals:
                self._take(Option(positionals.pop(0)), word, word)
            else:
                raise FieldError(f"unexpected argument '{word}'", next=f"see gymnast gym {self._title} --help")
        if self.command.required > len(self.command.positionals) - len(positionals):
            raise FieldError(f"gym {self._title} needs {positionals[0]}", next=f"see gymnast gym {self._title} --help")

    def arguments(self, roots: Roots) -> NgArguments:
        paths = tuple(self._path(kind, name, roots) for kind, name in self.selected)
        model_type = self.named.get("@model_type")
        if model_type is not None:
            ng_listing.find_config(roots, "models", model_type)  # raises with suggestions if it is unknown
        return NgArguments(
            tuple(self.words),
            paths,
            tuple(self.search_dirs),
            model_type=model_type,
            model=self.named.get("@model"),
            model_url=self.named.get("@model_url"),
            values=self.values,
        )

    def _path(self, kind: str, name: str, roots: Roots) -> str:
        return name if kind == "@config" else ng_listing.find_config(roots, _SELECTORS[kind], name)

    def _option(self, word: str, waiting: Iterator[str]) -> None:
        spelling, has_value, value = word.partition("=")
        long = SHORT.get(spelling, spelling)
        option = self.command.options.get(long)
        if option is None:
            raise FieldError(f"gym {self._title} has no option {spelling}", next=suggest(long, self.command.options))
        if option.key.startswith("!"):
            raise FieldError(f"gym {self._title} does not support {spelling}", next=option.key[1:])
        if option.convert is bool:
            if has_value:
                raise FieldError(f"{spelling} takes no value")
            self._set(option.key, True)  # noqa: FBT003 - the value of the option
            return
        text = value if has_value else next(waiting, None)
        if text is None:
            raise FieldError(f"{spelling} needs a value")
        self._take(option, spelling, text)

    def _take(self, option: Option, spelling: str, text: str) -> None:
        if option.key == "@search_dir":
            self.search_dirs.append(Path(text))
        elif option.key == "@config" or option.key in _SELECTORS:
            self.selected.append((option.key, text))
        elif option.key.startswith("@"):
            self.named[option.key] = text
        else:
            try:
                self._set(option.key, option.convert(text))
            except ValueError:
                raise FieldError(f"invalid value '{text}' for {spelling}", next=option.description) from None

    def _set(self, key: str, value: Any) -> None:
        """Set `a.b` as b of a; several keys are separated by commas."""
        for path in key.split(","):
            parent, steps = self.values, path.split(".")
            for step in steps[:-1]:
                parent = parent.setdefault(step, {})
            parent[steps[-1]] = value

    @property
    def _title(self) -> str:
        return " ".join(self.name)
