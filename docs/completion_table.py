"""Makes src/gymnast/cli/completion.json: every command with its options, arguments and the kinds of their values."""

from __future__ import annotations

from typing import Any, Final

import typer

from gymnast.cli.commands import build_app
from gymnast.cli.completion import SHELLS

_CHOICES: Final[dict[tuple[str, str], list[str]]] = {
    ("ctl", "command"): ["pause", "resume", "drain", "stop", "cancel", "set"],
    ("completion", "shell"): list(SHELLS),
    ("env new", "kind"): ["single-turn", "tools", "step"],
    ("profile", "failures_as"): ["excluded", "zero", "bounds"],
    ("submit", "executor"): ["local", "slurm", "ray"],
    ("submit", "server_type"): ["vllm", "sglang", "command"],
    ("submit", "code"): ["installed", "snapshot", "snapshot+dirty", "container"],
    ("train export", "share"): ["tokens", "equal", "last"],
}
"""The values of parameters that take one of a few words, by command and parameter."""
_KINDS: Final = {
    "overrides": "override",
    "config_files": "config",
    "environments": "environment",
    "against": "environment",
    "model_type": "model_type",
    "search_dirs": "folder",
    "folder": "folder",
    "output_dir": "folder",
    "key": "override",
}
"""The kinds of values by parameter."""
_FILE_PARAMETERS: Final = frozenset({"source", "data", "inputs", "prompt_config", "cluster"})


def completion_table() -> dict[str, Any]:
    """The table. Keys are commands as typed, without the program's name; the empty one is the program itself."""
    root: Any = typer.main.get_command(build_app())
    table: dict[str, Any] = {}
    _add(table, "", root)
    return table


def _add(table: dict[str, Any], name: str, command: Any) -> None:
    entry: dict[str, Any] = {"about": (command.help or "").strip().split("\n")[0]}
    children = {word: child for word, child in getattr(command, "commands", {}).items() if not child.hidden}
    if children:
        entry["commands"] = list(children)
    params = [param for param in command.params if not getattr(param, "hidden", False)]
    options = {
        spelling: [_kind(name, param), _one_line(param.help)]
        for param in params
        if param.param_type_name == "option"
        for spelling in (*param.opts, *param.secondary_opts)
    }
    entry["options"] = options | {word: [None, "Show this message and exit."] for word in ("-h", "--help")}
    entry["arguments"] = [
        [_kind(name, param), param.nargs == -1] for param in params if param.param_type_name == "argument"
    ]
    table[name] = entry
    for word, child in children.items():
        _add(table, f"{name} {word}".strip(), child)


def _kind(command: str, param: Any) -> Any:
    """The kind of a parameter's value; None for a flag."""
    if getattr(param, "is_flag", False):
        return None
    if (command, param.name) in _CHOICES:
        return _CHOICES[command, param.name]
    if (param.metavar or "").startswith("RUN"):
        return "run"
    if (command, param.name) == ("check env", "name"):
        return "environment"
    if param.name in _KINDS:
        return _KINDS[param.name]
    return "file" if _is_path(param) or param.name in _FILE_PARAMETERS else "value"


def _is_path(param: Any) -> bool:
    """Versions of typer differ in where they hold a parameter's type."""
    descriptor = getattr(param, "type_descriptor", None)
    kind = getattr(descriptor, "annotation", None) if descriptor is not None else param.type
    return "path" in str(kind).lower()


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
