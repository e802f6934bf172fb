"""The parser of `gymnast gym …`: turns its words and long options into the arguments of the `ng_` commands.

Every option sets a key (`--concurrency 8` sets `num_samples_in_parallel`) or selects a config file. One table has all
of them; an option or command that is not in it is an error with a suggestion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.compat import ng_listing
from gymnast.compat.gym_table import COMMANDS, GymCommand, Option
from gymnast.compat.ng_arguments import FieldError, NgArguments
from gymnast.config import read_environ
from gymnast.config.roots import Roots
from gymnast.errors import NotFoundError, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_SELECTORS: Final = {
    "@benchmark": "benchmarks",
    "@environment": "environments",
    "@resources_server": "resources-servers",
}
VERBOSE: Final = ("-v", "--verbose")
PROGRAM: Final = "gymnast gym"
"""What stands before a command, unless it is called as `gym` or `ng`."""


def translate(words: Sequence[str], roots_of: Any, program: str = PROGRAM) -> tuple[GymCommand, NgArguments]:
    """Parse a command line into a command and its arguments. `roots_of` makes roots out of search folders."""
    name, rest = _find_command(words)
    command = COMMANDS[name]
    parser = _Parser(name, command, program)
    parser.read(rest)
    parser.check()
    return command, parser.arguments(roots_of(tuple(parser.search_dirs)))


def search_roots(search_dirs: tuple[Path, ...]) -> Roots:
    """The roots with search folders in front."""
    return Roots((*search_dirs, *read_environ().extra_roots), Path.cwd())


def list_commands(group: str | None = None, program: str = PROGRAM) -> Iterator[str]:
    """One line per command, of a group or of all."""
    for name, command in COMMANDS.items():
        if group in {None, name[0]}:
            yield f"{program} {' '.join(name):<24} {command.about}"


def is_group(words: Sequence[str]) -> bool:
    """Whether the words name a group of commands and none of them."""
    return len(words) == 1 and (words[0],) not in COMMANDS and any(name[0] == words[0] for name in COMMANDS)


def describe_command(words: Sequence[str], program: str = PROGRAM) -> Iterator[str]:
    """The help of a command, or of the commands of a group."""
    if is_group([word for word in words if not word.startswith("-")]):
        yield from list_commands(words[0], program)
        return
    name, _ = _find_command(words)
    command = COMMANDS[name]
    yield f"{program} {' '.join(name)}: {command.about}"
    yield ""
    shorts = {long: short for short, long in command.short.items()}
    for option, meaning in command.options.items():
        value = " VALUE" if meaning.takes_value else ""
        spelling = f"{option}, {shorts[option]}" if option in shorts else option
        yield f"  {spelling + value:<28} {meaning.description}"
    yield "  +key=value                   Hydra-style settings, as for the ng_ commands; they override options"


def _find_command(words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The command that the words name; `-v` may come before it."""
    first = next((index for index, word in enumerate(words) if word not in VERBOSE), 0)
    words = [*words[first:], *words[:first]]
    for length in (2, 1):
        name = tuple(words[:length])
        if name in COMMANDS:
            return _find_kind(name, list(words[length:]))
    unknown = " ".join(word for word in words[:2] if not word.startswith(("-", "+")))
    known = [" ".join(name) for name in COMMANDS]
    raise FieldError(f"unknown command 'gym {unknown}'" if unknown else "missing command", next=suggest(unknown, known))


def _find_kind(name: tuple[str, ...], rest: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The command for the kind that is searched, which options may precede."""
    waiting = iter(enumerate(rest))
    for index, word in waiting:
        if word.startswith("-"):
            option = COMMANDS[name].options.get(word)
            if option is not None and option.takes_value:
                next(waiting, None)
        elif (*name, word) in COMMANDS:
            return (*name, word), [*rest[:index], *rest[index + 1 :]]
        else:
            break
    return name, rest


@dataclass
class _Parser:
    """Reads the words of a command."""

    name: tuple[str, ...]
    command: GymCommand
    program: str
    words: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    selected: list[tuple[str, str]] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    search_dirs: list[Path] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    """The options on the command line, by their long names."""

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
                raise FieldError(f"unexpected argument '{word}'", next=f"see {self.program} {self._title} --help")
        if self.command.required > len(self.command.positionals) - len(positionals):
            raise FieldError(
                f"gym {self._title} needs {positionals[0]}", next=f"see {self.program} {self._title} --help"
            )

    def arguments(self, roots: Roots) -> NgArguments:
        paths = tuple(self._path(kind, name, roots) for kind, name in self.selected)
        model_type = self.named.get("@model_type")
        if model_type is not None:
            _as_field(lambda: ng_listing.find_config(roots, "models", model_type))
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
        if kind == "@config":
            return name
        return _as_field(lambda: ng_listing.find_config(roots, _SELECTORS[kind], name))

    def check(self) -> None:
        """Refuse options that exclude each other."""
        for group in self.command.exclusive:
            both = sorted(group & set(self.given))
            if len(both) > 1:
                raise FieldError(f"{both[0]} and {both[1]} are mutually exclusive")

    def _option(self, word: str, waiting: Iterator[str]) -> None:
        spelling, has_value, value = word.partition("=")
        if not spelling.startswith("--") and len(spelling) > len("-x"):  # -iFILE
            spelling, has_value, value = word[:2], "=", word[2:]
        long = self._long(spelling)
        option = self.command.options[long]
        self.given.append(long)
        if not option.takes_value:
            if has_value:
                raise FieldError(f"{spelling} takes no value")
            self._set(option.key, option.constant)
            return
        texts = [value] if has_value else []
        texts += [text for text in (next(waiting, None) for _ in range(option.values - len(texts))) if text is not None]
        if len(texts) < option.values:
            raise FieldError(f"{spelling} needs {'a value' if option.values == 1 else f'{option.values} values'}")
        self._take(option, spelling, " ".join(texts))

    def _long(self, spelling: str) -> str:
        """The option that is meant: by its short name, its name, or an unambiguous beginning of it."""
        long = self.command.short.get(spelling, spelling)
        if long in self.command.options:
            return long
        matches = [name for name in self.command.options if spelling.startswith("--") and name.startswith(spelling)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise FieldError(f"{spelling} could be {' or '.join(matches)}")
        raise FieldError(f"gym {self._title} has no option {spelling}", next=suggest(long, self.command.options))

    def _take(self, option: Option, spelling: str, text: str) -> None:
        if option.key == "@search_dir":
            self.search_dirs.append(Path(text))
        elif option.key == "@config":
            self.selected += [(option.key, path) for path in text.split(",") if path]
        elif option.key in _SELECTORS:
            self.selected.append((option.key, text))
        elif option.key.startswith("@"):
            self.named[option.key] = text
        else:
            try:
                self._set(option.key, option.convert(text))
            except ValueError:
                raise FieldError(f"invalid value '{text}' for {spelling}", next=option.expected) from None

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


def _as_field(find: Callable[[], str]) -> str:
    """What was found; a name that does not exist is a wrong value of its option."""
    try:
        return find()
    except NotFoundError as error:
        raise FieldError(error.what, where=error.where, next=error.next) from error
