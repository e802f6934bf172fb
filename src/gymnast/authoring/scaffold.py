"""Creates a new environment from a template: working files to adapt."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal, get_args

from gymnast.config.roots import BUILTIN
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Kind = Literal["single-turn", "tools", "step"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")
_VALUES: Final[Mapping[Kind, Mapping[str, str]]] = {
    "single-turn": {"agent": "simple_agent", "domain": "knowledge", "description": "one answer, right or wrong"},
    "tools": {"agent": "simple_agent", "domain": "agent", "description": "a tool, then one number"},
    "step": {"agent": "gymnasium_agent", "domain": "games", "description": "a game over several turns"},
}
_FILES: Final = {
    "app.py.tmpl": "app.py",
    "rules.py.tmpl": "rules.py",
    "example.jsonl": "data/example.jsonl",
    "verifier_cases.jsonl": "data/verifier_cases.jsonl",
    "rehearsal.yaml.tmpl": "data/rehearsal.yaml",
    "test.py.tmpl": "tests/test_{name}.py",
}


@dataclass(frozen=True, slots=True)
class Scaffold:
    """The files of a new environment, by path relative to its folder."""

    name: str
    kind: Kind
    files: Mapping[str, str]


def scaffold(name: str, kind: Kind) -> Scaffold:
    """The initial files of a new environment. Writes nothing."""
    _check_name(name)
    values = {"name": name, "Class": "".join(map(str.capitalize, name.split("_"))), **_VALUES[kind]}
    texts = {target.format(name=name): _fill(f"{kind}/{source}", values) for source, target in _FILES.items()}
    texts[f"configs/{name}.yaml"] = _fill("config.yaml.tmpl", values)
    texts["README.md"] = _fill(f"{kind}/README.md.tmpl", values) + _fill("commands.md.tmpl", values)
    texts["__init__.py"] = ""
    return Scaffold(name, kind, texts)


def write_scaffold(new: Scaffold, folder: Path) -> list[Path]:
    """Write the files to `folder/resources_servers/NAME`, which must not exist."""
    home = folder / "resources_servers" / new.name
    if home.exists():
        raise UserError(
            f"the environment '{new.name}' already exists", where=str(home), next="choose another name, or remove it"
        )
    written: list[Path] = []
    for name, text in sorted(new.files.items()):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(
            f"invalid environment name '{name}'",
            next="use lowercase letters, digits and underscores, starting with a letter: my_environment",
        )
    if (BUILTIN / "resources_servers" / name).exists():
        raise UserError(
            f"'{name}' is a builtin environment",
            next="choose another name: yours would shadow it in this folder",
        )


def _fill(template: str, values: Mapping[str, str]) -> str:
    text = (files("gymnast.authoring") / "templates" / template).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text)
