"""`gymnast gym …`: the words and long options of the newer command line, as what the `ng_` commands are asked.

Every option stands for a key (`--concurrency 8` for `num_samples_in_parallel`) or picks a config file. What is known is
one table; an option or command that is not in it is an error with a suggestion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.compat import ng_listing
from gymnast.compat.gym_table import COMMANDS, SHORT, GymCommand, Option
from gymnast.compat.ng_asked import Asked, FieldError
from gymnast.errors import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.config.roots import Roots

_SELECTORS: Final = {
    "@benchmark": "benchmarks",
    "@environment": "environments",
    "@resources_server": "resources-servers",
}


def translate(words: Sequence[str], roots_of: Any) -> tuple[GymCommand, Asked]:
    """The command that is meant, and what it is asked. `roots_of` makes roots out of search folders."""
    name, rest = _named(words)
    command = COMMANDS[name]
    reading = _Reading(name, command)
    reading.read(rest)
    return command, reading.asked(roots_of(tuple(reading.search_dirs)))


def overview() -> Iterator[str]:
    """The commands there are, a line each."""
    for name, command in COMMANDS.items():
        yield f"gymnast gym {' '.join(name):<24} {command.about}"


def explained(words: Sequence[str]) -> Iterator[str]:
    """What a command does and takes."""
    name, _ = _named(words)
    command = COMMANDS[name]
    yield f"gymnast gym {' '.join(name)}: {command.about}"
    yield ""
    for option, meaning in command.options.items():
        value = "" if meaning.convert is bool or meaning.key.startswith("!") else " VALUE"
        yield f"  {option + value:<28} {meaning.shown}"
    yield "  +key=value                   Hydra-style settings, as for the ng_ commands; they win over options"


def _named(words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    for length in (2, 1):
        name = tuple(words[:length])
        if name in COMMANDS:
            return name, list(words[length:])
    said = " ".join(word for word in words[:2] if not word.startswith(("-", "+")))
    known = [" ".join(name) for name in COMMANDS]
    what = f"there is no command 'gym {said}'" if said else "a command is missing"
    raise FieldError(what, next=suggest(said, known))


@dataclass
class _Reading:
    """Goes through the words of a command."""

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
        places = list(self.command.places)
        waiting = iter(rest)
        for word in waiting:
            if word.startswith("-"):
                self._option(word, waiting)
            elif word.startswith(("+", "~")) or "=" in word:
                self.words.append(word)
            elif places:
                self._take(Option(places.pop(0)), word, word)
            else:
                raise FieldError(f"'{word}' is one argument too many", next=f"see gymnast gym {self._said} --help")
        if self.command.least > len(self.command.places) - len(places):
            raise FieldError(f"gym {self._said} needs {places[0]}", next=f"see gymnast gym {self._said} --help")

    def asked(self, roots: Roots) -> Asked:
        paths = tuple(self._path(kind, name, roots) for kind, name in self.selected)
        model_type = self.named.get("@model_type")
        if model_type is not None:
            ng_listing.config_of(roots, "models", model_type)  # an unknown one is said with suggestions
        return Asked(
            tuple(self.words),
            paths,
            tuple(self.search_dirs),
            model_type=model_type,
            model=self.named.get("@model"),
            model_url=self.named.get("@model_url"),
            values=self.values,
        )

    def _path(self, kind: str, name: str, roots: Roots) -> str:
        return name if kind == "@config" else ng_listing.config_of(roots, _SELECTORS[kind], name)

    def _option(self, word: str, waiting: Iterator[str]) -> None:
        spelt, has_value, value = word.partition("=")
        long = SHORT.get(spelt, spelt)
        option = self.command.options.get(long)
        if option is None:
            raise FieldError(f"gym {self._said} has no option {spelt}", next=suggest(long, self.command.options))
        if option.key.startswith("!"):
            raise FieldError(f"gym {self._said} does nothing with {spelt} here", next=option.key[1:])
        if option.convert is bool:
            if has_value:
                raise FieldError(f"{spelt} takes no value")
            self._set(option.key, True)  # noqa: FBT003 - what the option says
            return
        text = value if has_value else next(waiting, None)
        if text is None:
            raise FieldError(f"{spelt} needs a value")
        self._take(option, spelt, text)

    def _take(self, option: Option, spelt: str, text: str) -> None:
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
                raise FieldError(f"{spelt} cannot be '{text}'", next=option.shown) from None

    def _set(self, key: str, value: Any) -> None:
        """`a.b` sets b of a; several keys are parted by commas."""
        for one in key.split(","):
            home, steps = self.values, one.split(".")
            for step in steps[:-1]:
                home = home.setdefault(step, {})
            home[steps[-1]] = value

    @property
    def _said(self) -> str:
        return " ".join(self.name)
