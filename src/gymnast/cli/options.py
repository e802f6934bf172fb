"""Arguments that several commands share, how they become a configuration, and how commands print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.config.known_keys import KnownKeys

RUN_HELP: Final = "The run: its output file, its folder, or any of its files."


def run_output(text: str | Path) -> Path:
    """The output file of the run that a command line names."""
    from gymnast.store.find_run import find_run

    return find_run(Path(text)).output


Run = Annotated[Path, typer.Argument(metavar="RUN", help=RUN_HELP, parser=run_output, show_default=False)]
OptionalRun = Annotated[Path | None, typer.Argument(metavar="RUN", help=RUN_HELP, parser=run_output)]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        help="Hydra-style overrides: +key=value, ++a.b=value, ~key.", show_default=False, metavar="OVERRIDES"
    ),
]
ConfigFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", help="Config file, looked up in search dirs, here, then among the built-ins. Repeatable."
    ),
]
Environments = Annotated[
    list[str] | None,
    typer.Option(
        "--environment",
        "-e",
        help="Environment NAME[/FLAVOR], from resources_servers/NAME/configs/FLAVOR.yaml. Repeatable.",
    ),
]
ModelType = Annotated[
    str | None, typer.Option("--model-type", help="Model server NAME[/FLAVOR], e.g. vllm, openai or anthropic.")
]
ModelName = Annotated[str | None, typer.Option("--model", "-m", help="Name of the policy model (policy_model_name).")]
ModelUrl = Annotated[
    str | None, typer.Option("--model-url", help="Base URL of the policy endpoint (policy_base_url), including /v1.")
]
ModelKeyName = Annotated[
    str | None,
    typer.Option("--model-key-name", help="Name of the policy's API key in your keys file (policy_api_key)."),
]
SearchDirs = Annotated[
    list[Path] | None,
    typer.Option("--search-dir", help="Search this folder first for configs, servers and data. Repeatable."),
]
UnsafeNoSandbox = Annotated[
    bool,
    typer.Option("--unsafe-no-sandbox", help="Run model-written code unsandboxed, as your user."),
]
PromptConfig = Annotated[
    str | None, typer.Option("--prompt-config", help="YAML with `user` and `system` templates filled from each row.")
]
Prompt = Annotated[
    str | None,
    typer.Option("--prompt", help="Prompt with fields of the row, 'Solve: {question}', or a .yaml, .txt or .md file."),
]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", help="TARGET=SOURCE: copy a field of each row, e.g. expected_answer=answer. Repeatable."),
]
NoPreflight = Annotated[
    bool,
    typer.Option("--no-preflight", help="Start at full concurrency, without trying the first rollouts one at a time."),
]
NoAggregate = Annotated[bool, typer.Option("--disable-aggregation", help="Do not write x_aggregate_metrics.json.")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="TRACKER[:PLACE]",
        help="Report to wandb, mlflow, tensorboard or trackio; PLACE is a project or folder. Commas or repeatable.",
    ),
]
Trace = Annotated[
    str | None, typer.Option("--trace", metavar="URL", help="Send traces of rollouts to this OTLP/HTTP collector.")
]
TraceSample = Annotated[
    float, typer.Option("--trace-sample", min=0, max=1, help="Share of the rollouts to trace, with --trace.")
]
Label = Annotated[list[str] | None, typer.Option("--label", help="Only rollouts with this label. Repeatable.")]
NotLabel = Annotated[list[str] | None, typer.Option("--not-label", help="No rollouts with this label. Repeatable.")]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Head = Annotated[str | None, typer.Option("--head", help="URL of a head server, e.g. http://127.0.0.1:11000.")]


CONFIG_OPTIONS: Final = (
    *("config_files", "environments", "model_type", "model", "model_url", "model_key_name", "search_dirs"),
    "unsafe_no_sandbox",
)
"""Parameters of the commands that run something, as `load` takes them."""
SOURCE_OPTIONS: Final = ("source", "split", "output", "temperature", "top_p", "max_output_tokens")
RUN_OPTIONS: Final = (
    *("num_repeats", "limit", "prompt_config", "prompt", "map", "add_seed", "skip_bad_rows", "agent", "concurrency"),
    *("rollout_timeout_s", "max_attempts", "give_up_after_s", "resume", "retry_failed", "overwrite"),
)
"""Parameters of these commands as `run_options` takes them; those of SOURCE_OPTIONS mean something else to `eval`."""


def load(
    overrides: list[str] | None,
    *,
    config_files: list[str] | None = None,
    environments: list[str] | None = None,
    model_type: str | None = None,
    model: str | None = None,
    model_url: str | None = None,
    model_key_name: str | None = None,
    search_dirs: list[Path] | None = None,
    stub_policy: bool = False,
    unsafe_no_sandbox: bool = False,
    command_keys: KnownKeys | None = None,
    agent: str | None = None,
) -> Config:
    """Compose the configuration that a command line describes; warnings and notes go to standard error."""
    from gymnast.config import compose, read_environ

    config = compose(
        read_environ(),
        overrides=overrides or (),
        config_paths=config_files or (),
        environments=environments or (),
        model_type=model_type,
        model=model,
        model_url=model_url,
        model_key_name=model_key_name,
        search_dirs=search_dirs or (),
        stub_policy=stub_policy,
        command_keys=command_keys,
        agent=agent,
    )
    warn_of_missing(search_dirs)
    for warning in config.warnings:
        say(f"warning: {warning}")
    for note in config.notes:
        say(f"note: {note}")
    return _disable_sandbox(config) if unsafe_no_sandbox else config


def warn_of_missing(search_dirs: list[Path] | None) -> None:
    """Say which search folders do not exist: nothing is found in them."""
    for folder in search_dirs or ():
        if not folder.is_dir():
            say(f"warning: --search-dir {folder}: no such folder")


def _disable_sandbox(config: Config) -> Config:
    from gymnast.runtime.unsandboxed import without_sandbox

    config, names = without_sandbox(config)
    if names:
        say(f"warning: --unsafe-no-sandbox: model-written code runs as your user, unsandboxed ({', '.join(names)})")
    return config


def say(text: str) -> None:
    """Print a message to standard error; results go to standard output. A failed write does not stop the command."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        return


def print_json(value: Any) -> None:
    """Print a result to standard output as indented JSON."""
    import orjson

    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
