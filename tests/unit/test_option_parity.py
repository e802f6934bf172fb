"""Every option of `gymnast collect` is an option of `gymnast.collect`, and the other way round."""

from __future__ import annotations

import inspect

import gymnast
from gymnast.cli import collect
from gymnast.rollouts.options import run_options

SPELLED_DIFFERENTLY = {
    "config_files": "config_paths",
    "no_aggregate": "aggregate",
    "fork": "on_change",
    "extend": "on_change",
    "force": "on_change",
    "via_serve": "head",
}
"""Flags of the command line, and the library's parameter for the same."""
COMMAND_ONLY = {"as_json", "metrics_port"}
"""How the command talks; the library has events."""
LIBRARY_ONLY = {"config", "on_event", "on_note", "params", "progress"}
"""Objects that a command line cannot write; `params` is any field of the request, not only the common three;
`progress` is for notebooks."""
NEMO_GYM_ONLY = {"deep_merge", "skills", "token_form", "existing", "read_fields"}
"""What the ng_ commands do differently."""


def parameters(function: object) -> set[str]:
    return set(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_command_and_the_library_take_the_same_options() -> None:
    command = {SPELLED_DIFFERENTLY.get(name, name) for name in parameters(collect.command)} - COMMAND_ONLY
    assert command == parameters(gymnast.collect) - LIBRARY_ONLY


def test_the_library_passes_every_option_of_a_run_on() -> None:
    assert parameters(run_options) - NEMO_GYM_ONLY - {"config"} <= parameters(gymnast.collect)


def test_the_synchronous_collect_takes_the_same_options() -> None:
    assert inspect.signature(gymnast.collect_sync).parameters == inspect.signature(gymnast.collect).parameters
