"""API keys by name: `${key:NAME}` in a configuration stands for a value of the user's keys file, mode 0600.

The file is a mapping of names to keys, read only if a configuration names one. Its values never enter the tree that
`config show --origins` prints; what is resolved is masked wherever it is shown.
"""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Any, Final

from gymnast.config import tree
from gymnast.config.tree import plain
from gymnast.config.yaml_source import read_yaml
from gymnast.errors import ConfigError, Problem, suggest

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.config.tree import Node

_REFERENCE: Final = re.compile(r"\$\{key:([^}]*)\}")
_NAME: Final = re.compile(r"[\w.-]+")
_FORM: Final = "write a line `NAME: KEY` for each key"


def key_reference(name: str) -> str:
    """The text that stands for a key in a configuration."""
    return f"${{key:{name}}}"


class Keyring:
    """The keys that a configuration names, with a problem for each that cannot be used."""

    def __init__(self, root: Node, file: Path) -> None:
        self.problems: list[Problem] = []
        self._values: dict[str, str] = {}
        self._file = file
        references = {
            name: (path, node)
            for path, node in tree.walk(root)
            if isinstance(node.value, str)
            for name in _REFERENCE.findall(node.value)
        }
        if references:
            known = self._read()
            for name, (path, node) in references.items():
                self._take(name, known, tree.show_path(path), str(node.origin))

    @property
    def secrets(self) -> list[str]:
        """The values, to be masked wherever they would be shown."""
        return list(self._values.values())

    def substitute(self, value: Any) -> Any:
        """A plain tree with the keys in place of their names."""
        if isinstance(value, dict):
            return {name: self.substitute(child) for name, child in value.items()}
        if isinstance(value, list):
            return [self.substitute(child) for child in value]
        if isinstance(value, str) and "${key:" in value:
            return _REFERENCE.sub(lambda match: self._values.get(match[1], "").replace("${", "\\${"), value)
        return value

    def _take(self, name: str, known: dict[str, Any] | None, where: str, origin: str) -> None:
        if known is None:
            return  # the file cannot be used, which is one problem and not one for each name
        value = known.get(name)
        if isinstance(value, str) and value:
            self._values[name] = value.strip()
            return
        what = f"'{where}' reads the key '{name}', which {self._file} does not have"
        if name in known:
            what = f"'{where}' reads the key '{name}', which is not a text in {self._file}"
        elif not _NAME.fullmatch(name):
            what = f"'{where}' reads the key '{name}': a name has letters, digits, _ . and - only"
        hint = suggest(name, known) or f"add `{name}: …` to it"
        self.problems.append(Problem(what, where=origin, next=hint))

    def _read(self) -> dict[str, Any] | None:
        try:
            return _read_keys(self._file)
        except _UnusableError as error:
            what = f"the keys file cannot be used: {error.why}"
            self.problems.append(Problem(what, where=str(self._file), next=error.next))
            return None


def stored_keys(file: Path) -> list[str]:
    """All keys of a file, to be blanked out of what leaves this machine; none if the file cannot be used."""
    try:
        return [value for value in _read_keys(file).values() if isinstance(value, str)]
    except _UnusableError:
        return []


class _UnusableError(Exception):
    def __init__(self, why: str, next_step: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.next = next_step


def _read_keys(file: Path) -> dict[str, Any]:
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            raise _UnusableError("it is not a file")
        if stat.S_IMODE(mode) & 0o077:
            raise _UnusableError("other users can read it", f"chmod 600 {file}")
        values = plain(read_yaml(file, shown=str(file)))
    except FileNotFoundError as error:
        raise _UnusableError("it does not exist", f"create it with mode 600; {_FORM}") from error
    except OSError as error:
        raise _UnusableError(error.strerror or str(error)) from error
    except ConfigError:
        raise _UnusableError("it is not valid YAML", _FORM) from None  # its text would show a line of the file
    if not isinstance(values, dict):
        raise _UnusableError("it is not a mapping", _FORM)
    return values
