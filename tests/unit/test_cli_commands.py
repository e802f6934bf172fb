"""A call builds the command that it names and no other; alone it is the same as among all."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import typer

from gymnast.cli.commands import build_app
from gymnast.cli.main import run_guarded
from gymnast.config.overrides import parse_overrides
from gymnast.errors import ConfigError, UserError
from gymnast.rollouts.options import run_options


def commands_of(name: str | None) -> dict[str, Any]:
    command: Any = typer.main.get_command(build_app(name))
    return dict(command.commands)


@pytest.mark.parametrize("name", ["status", "check", "ctl", "version"])
def test_a_call_builds_the_command_that_it_names(name: str) -> None:
    assert set(commands_of(name)) == {name}


@pytest.mark.parametrize("name", [None, "--help", "colect"])
def test_help_and_typing_errors_need_all_commands(name: str | None) -> None:
    assert {"collect", "submit", "version", "check", "train"} <= set(commands_of(name))


def test_a_command_is_the_same_alone_as_among_all() -> None:
    for name, command in commands_of(None).items():
        alone = commands_of(name)[name]
        assert alone.help == command.help
        assert [param.opts for param in alone.params] == [param.opts for param in command.params]
        assert list(getattr(alone, "commands", ())) == list(getattr(command, "commands", ()))


def leaves(commands: dict[str, Any]) -> list[Any]:
    return [leaf for command in commands.values() for leaf in leaves(getattr(command, "commands", {})) or [command]]


def test_old_names_of_options_mean_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    renamed = [command for command in leaves(commands_of(None)) if getattr(command, "old_names", None)]
    assert len(renamed) >= 10
    for command in renamed:
        options = {option for param in command.params for option in param.opts}
        for old, new in command.old_names.items():
            assert new in options
            assert old not in options
            assert command._current(f"{old}=1") == f"{new}=1"
            assert f"warning: {old} is now {new}" in capsys.readouterr().err


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_options_may_have_underscores_which_help_does_not_show(invoke: Any) -> None:
    for words in (["collect"], ["submit"], ["nemo-gym-rollouts"]):
        shown = invoke("gymnast", *words, "--help").out
        assert "--output" in shown
        assert not re.findall(r"--[a-z-]+_", shown)
    assert "No such option" in invoke("gymnast", "collect", "--num-repeat_s", "2").err
    assert "No such option" not in invoke("gymnast", "collect", "--num_repeats", "2").err
    value = invoke("gymnast", "submit", "--server_type", "my_server", "-o", "x.jsonl", "-i", "y.jsonl", "-m", "m").err
    assert "my_server" in value


def numeric_options() -> list[tuple[list[str], str, type, Any]]:
    """Every option that takes a number: the words of its command, its name, its type, and what typer knows of it."""

    def commands(app: Any, words: list[str]) -> list[tuple[list[str], Any]]:
        leaves = [([*words, command.name], command.callback) for command in app.registered_commands]
        for group in app.registered_groups:
            leaves += commands(group.typer_instance, [*words, group.name])
        return leaves

    options = []
    for words, function in commands(build_app(), []):
        for name, hint in get_type_hints(function, include_extras=True).items():
            if get_origin(hint) is Annotated:
                base, info = get_args(hint)[:2]
                kinds = (set(get_args(base)) or {base}) & {int, float}
                options += [(words, name, kind, info) for kind in kinds]
    return options


def spelling(words: list[str], name: str) -> str:
    command: Any = typer.main.get_command(build_app(words[0]))
    for word in words:
        command = command.commands[word]
    return next(str(param.opts[-1]) for param in command.params if param.name == name)


def test_every_option_that_takes_a_whole_number_has_a_minimum() -> None:
    options = [(words, name, info) for words, name, kind, info in numeric_options() if kind is int]
    assert len(options) > 40
    assert [(words, name) for words, name, info in options if info.min is None] == []


ANY_NUMBER = {"pass_at", "fail_if_below", "threshold"}
"""Rewards, and differences of them: any finite number."""


def test_every_option_that_takes_a_number_has_a_minimum_or_takes_any() -> None:
    options = [(name, info) for _, name, kind, info in numeric_options() if kind is float]
    assert len(options) > 20
    assert {name for name, info in options if info.min is None} == ANY_NUMBER


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e300"])
def test_no_option_takes_nan_infinity_or_absurdly_large_numbers(
    invoke: Any, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x.jsonl", "x_materialized_inputs.jsonl"):  # the run that commands are asked about
        (tmp_path / name).touch()
    seen = 0
    for words, name, kind, _ in numeric_options():
        option = spelling(words, name)
        if kind is float and option.startswith("--"):
            outcome = invoke("gymnast", *words, *_required(words), f"{option}={value}")
            assert outcome.code == 2, (words, option, outcome.err)
            assert "Traceback" not in outcome.err
            assert option.replace("_", "-") in outcome.err.replace("_", "-")
            seen += 1
    assert seen > 20


def test_no_option_takes_a_whole_number_of_thirty_digits(invoke: Any) -> None:
    for words, name, kind, _ in numeric_options():
        option = spelling(words, name)
        if kind is int:
            outcome = invoke("gymnast", *words, *_required(words), f"{option}={10**30}")
            assert outcome.code == 2, (words, option, outcome.err)
            assert "Traceback" not in outcome.err


def _required(words: list[str]) -> list[str]:
    """Values for what a command needs besides the option."""
    command: Any = typer.main.get_command(build_app(words[0]))
    for word in words:
        command = command.commands[word]
    needed = [param for param in command.params if param.required]
    return [f"{param.opts[-1]}=x" if param.opts[-1].startswith("-") else "x" for param in needed]


@pytest.mark.parametrize("output", ["-", "/dev/null", "/dev/stdout", "/dev/fd/1"])
def test_an_output_that_a_resume_cannot_read_is_refused(output: str) -> None:
    with pytest.raises(UserError, match="must be a regular file"):
        run_options(None, output=output, source="x.jsonl", agent="a")


def test_names_that_standard_output_cannot_encode_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    assert run_guarded(lambda: sys.stdout.write("out/\u65e5.jsonl\n") and 0) == 0
    assert raw.getvalue() == b"out/\\u65e5.jsonl\n"


@pytest.mark.parametrize("text", ["foo", "--temprature", "out.jsonl"])
def test_an_argument_that_is_no_override_is_told_the_form_of_one(text: str) -> None:
    with pytest.raises(ConfigError, match="expected an override, KEY=VALUE"):
        parse_overrides([text])
