"""Options that several commands share, and how they become a configuration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gymnast.config import Config

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        help="Hydra-style overrides: +key=value, ++a.b=value, ~key.", show_default=False, metavar="OVERRIDES"
    ),
]
ConfigFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", help="A config file; looked up in search dirs, here, then the shipped hub. Repeatable."
    ),
]
Environments = Annotated[
    list[str] | None,
    typer.Option(
        "--environment",
        "-e",
        help="A shipped or own environment NAME[/FLAVOR]: resources_servers/NAME/configs/FLAVOR.yaml.",
    ),
]
ModelType = Annotated[str | None, typer.Option("--model-type", help="A model server NAME[/FLAVOR], e.g. vllm_model.")]
ModelName = Annotated[str | None, typer.Option("--model", "-m", help="Name of the policy model (policy_model_name).")]
ModelUrl = Annotated[
    str | None, typer.Option("--model-url", help="Base URL of the policy endpoint (policy_base_url), with its /v1.")
]
SearchDirs = Annotated[
    list[Path] | None, typer.Option("--search-dir", help="Look here first for configs, servers and data. Repeatable.")
]
UnsafeNoSandbox = Annotated[
    bool,
    typer.Option("--unsafe-no-sandbox", help="Run programs that a model wrote as you, without walls."),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Head = Annotated[str | None, typer.Option("--head", help="URL of a head server, e.g. http://127.0.0.1:11000.")]


def load(
    overrides: list[str] | None,
    *,
    config_files: list[str] | None = None,
    environments: list[str] | None = None,
    model_type: str | None = None,
    model: str | None = None,
    model_url: str | None = None,
    search_dirs: list[Path] | None = None,
    stub_policy: bool = False,
    unsafe_no_sandbox: bool = False,
) -> Config:
    """The configuration that a command line describes; warnings go to standard error."""
    from gymnast.config import compose, read_environ

    config = compose(
        read_environ(),
        overrides=overrides or (),
        config_paths=config_files or (),
        environments=environments or (),
        model_type=model_type,
        model=model,
        model_url=model_url,
        search_dirs=search_dirs or (),
        stub_policy=stub_policy,
    )
    for warning in config.warnings:
        say(f"warning: {warning}")
    return _unsandboxed(config) if unsafe_no_sandbox else config


def _unsandboxed(config: Config) -> Config:
    from gymnast.runtime.unsandboxed import without_sandbox

    config, names = without_sandbox(config)
    if names:
        say(f"warning: without a sandbox, as you asked: programs that a model wrote run as you ({', '.join(names)})")
    return config


def say(text: str) -> None:
    """Talk goes to standard error; results go to standard output. A log that cannot be written ends no work."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        return


def print_json(value: Any) -> None:
    """A result as JSON on standard output, indented."""
    import orjson

    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
