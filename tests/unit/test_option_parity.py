"""Every option of `gymnast collect` is an option of `gymnast.collect`, and the other way round."""

from __future__ import annotations

import inspect

import gymnast
from gymnast.cli import collect, evaluate
from gymnast.rollouts.options import run_options

SPELLED_DIFFERENTLY = {
    "config_files": "config_paths",
    "no_aggregate": "aggregate",
    "no_preflight": "preflight",
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
NOT_IN_EVAL = {
    "source": "the benchmarks and files of tasks are arguments",
    "split": "a benchmark names its data",
    "output": "--output-dir: several benchmarks write several runs",
    "via_serve": "a benchmark brings its own configuration; a running serve has another",
    "head": "see via_serve",
}
"""Options of collect that an eval lacks, and why."""
ONLY_IN_EVAL = {
    "names",
    "output_dir",
    "ks",
    "answer_key",
    "subset_key",
    "baseline",
    "local_copy",
    "revision",
    "list_",
    "show",
    "pass_hat",
}
"""Which benchmarks, from which data, and how their figures are computed."""


def parameters(function: object) -> set[str]:
    return set(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_command_and_the_library_take_the_same_options() -> None:
    command = {SPELLED_DIFFERENTLY.get(name, name) for name in parameters(collect.command)} - COMMAND_ONLY
    assert command == parameters(gymnast.collect) - LIBRARY_ONLY


def test_the_library_passes_every_option_of_a_run_on() -> None:
    passed_on = {"head" if name == "serve" else name for name in parameters(run_options)}  # found from its address
    assert passed_on - NEMO_GYM_ONLY - {"config"} <= parameters(gymnast.collect)


def test_the_synchronous_collect_takes_the_same_options() -> None:
    assert inspect.signature(gymnast.collect_sync).parameters == inspect.signature(gymnast.collect).parameters


def test_an_eval_takes_the_options_of_a_collect() -> None:
    assert parameters(evaluate.command) - ONLY_IN_EVAL == parameters(collect.command) - NOT_IN_EVAL.keys()


def test_options_of_an_eval_are_spelled_and_have_defaults_as_in_collect() -> None:
    ours, theirs = inspect.signature(evaluate.command).parameters, inspect.signature(collect.command).parameters
    for name in ours.keys() & theirs.keys():
        assert ours[name].default == theirs[name].default, name
        if name not in {"overrides", "num_repeats"}:  # arguments are benchmarks; the protocol has a number of repeats
            assert str(ours[name].annotation) == str(theirs[name].annotation), name
