"""The `ng_*` commands: Hydra-style arguments only, behaviour and exit codes as their users know them.

A configuration that is wrong ends with exit code 1 and one message; a command field that is missing or invalid with 2.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnast import __version__
from gymnast.cli.main import guarded, say_error
from gymnast.errors import UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gymnast.config import Config

CONFIG_ERROR = 1
FIELD_ERROR = 2

COMMANDS = {
    "ng_run": "serve the configured instances and the head server: ng_run +config_paths=[a.yaml,b.yaml]",
    "ng_collect_rollouts": "collect: ng_collect_rollouts +agent_name=A +input_jsonl_fpath=I +output_jsonl_fpath=O",
    "ng_e2e_collect_rollouts": "serve and collect a configured split: +config_paths=[…] +split=S +output_jsonl_fpath=O",
    "ng_reward_profile": "profile: ng_reward_profile +materialized_inputs_jsonl_fpath=I +rollouts_jsonl_fpath=R",
    "ng_prepare_data": "put configured datasets together: +config_paths=[…] +mode=train_preparation +output_dirpath=D",
    "ng_download_dataset_from_hf": "fetch: +repo_id=ORG/NAME +artifact_fpath=F +output_fpath=O, or +output_dirpath=D",
    "ng_materialize_prompts": "apply a template: +input_jsonl_fpath=I +prompt_config=P.yaml +output_jsonl_fpath=O",
    "ng_status": "show the health of running servers",
    "ng_dump_config": "print the resolved configuration, secrets masked",
    "ng_validate": "check a configuration without starting anything",
    "ng_version": "print the version",
    "ng_help": "print this list",
}


class FieldError(UserError):
    """A command field that is missing or has the wrong form."""


def run() -> None:
    """`ng_run`: serve until interrupted."""

    def command() -> int:
        from gymnast.cli import serve
        from gymnast.runtime.serving import ServeOptions

        config = _config(sys.argv[1:]).checked()
        return serve.run(config, ServeOptions(), as_json=False)

    _main("ng_run", command)


def collect_rollouts() -> None:
    """`ng_collect_rollouts`: through a running serve, or in this process where config paths are given."""

    def command() -> int:
        config = _config(sys.argv[1:], stub_policy=not _names_configs(sys.argv[1:]))
        config.checked()
        source = config.roots.require(CollectFields(config).text("input_jsonl_fpath"), "input_jsonl_fpath")
        return _collect(config, source, remote=not config.agents)

    _main("ng_collect_rollouts", command)


def e2e_collect_rollouts() -> None:
    """`ng_e2e_collect_rollouts`: with servers of its own, the configured datasets of one split."""

    def command() -> int:
        from gymnast.rollouts.splits import write_split
        from gymnast.store.paths import RunPaths

        config = _config(sys.argv[1:]).checked()
        fields = CollectFields(config)
        split = fields.text("split")
        target = RunPaths(Path(fields.text("output_jsonl_fpath"))).split(split)
        if not (config.values.get("reuse_existing_data_preparation") and target.exists()):
            write_split(config, split, target)
        return _collect(config, target, remote=False)

    _main("ng_e2e_collect_rollouts", command)


def _collect(config: Config, source: Path, *, remote: bool) -> int:
    from gymnast.cli import collect
    from gymnast.rollouts.run import CollectRequest
    from gymnast.rollouts.verdict import Allowance
    from gymnast.runtime.cell import token_form_of

    fields = CollectFields(config)
    request = CollectRequest(
        source=source,
        output=Path(fields.text("output_jsonl_fpath")),
        plan=fields.plan(),
        engine=fields.engine(),
        existing="resume" if config.values.get("resume_from_cache") else "set_aside",
        aggregate=not config.values.get("disable_aggregation"),
        request_debug=bool(config.values.get("global_aiohttp_client_request_debug")),
        token_form=token_form_of(config, "items"),  # what readers of NeMo Gym's records expect
    )
    return collect.run(request, config, Allowance(), remote=remote, head=None, as_json=False)


def reward_profile() -> None:
    """`ng_reward_profile`: per-task statistics of a finished collection."""

    def command() -> int:
        from gymnast.cli import profile
        from gymnast.profile.run_profile import ProfileRequest

        config = _config(sys.argv[1:], stub_policy=True)
        fields = CollectFields(config)
        inputs = config.roots.require(fields.text("materialized_inputs_jsonl_fpath"), "materialized_inputs_jsonl_fpath")
        rollouts = config.roots.require(fields.text("rollouts_jsonl_fpath"), "rollouts_jsonl_fpath")
        allow_partial = bool(config.values.get("allow_partial_rollouts"))
        return profile.run(ProfileRequest((inputs,), (rollouts,), rollouts, allow_partial))

    _main("ng_reward_profile", command)


def prepare_data() -> None:
    """`ng_prepare_data`: the configured datasets, checked, measured and put together by type."""

    def command() -> int:
        from gymnast.cli import data
        from gymnast.data.configured import SOURCES
        from gymnast.data.prepare import MODES, PrepareRequest

        config = _config(sys.argv[1:], stub_policy=True)
        fields = CollectFields(config)
        request = PrepareRequest(
            mode=fields.one_of("mode", MODES),
            output_dir=Path(fields.text("output_dirpath")),
            download=bool(config.values.get("should_download")),
            data_source=fields.one_of("data_source", SOURCES) if config.values.get("data_source") else None,
            overwrite_conflicts=bool(config.values.get("overwrite_metrics_conflicts")),
        )
        return data.run_prepare(config.checked(), request, as_json=bool(config.values.get("json")))

    _main("ng_prepare_data", command)


def download_dataset_from_hf() -> None:
    """`ng_download_dataset_from_hf`: a file of a Hub dataset, or its splits as JSONL."""

    def command() -> int:
        from gymnast.cli import data
        from gymnast.data.fetch import FetchRequest, check_request

        config = _config(sys.argv[1:], stub_policy=True)
        fields = CollectFields(config)
        output, folder = fields.optional("output_fpath"), fields.optional("output_dirpath")
        request = FetchRequest(
            repo_id=fields.text("repo_id"),
            artifact=fields.optional("artifact_fpath"),
            split=fields.optional("split"),
            output=Path(output) if output else None,
            output_dir=Path(folder) if folder else None,
            revision=fields.optional("revision"),
        )
        try:
            check_request(request)
        except UserError as error:
            raise FieldError(error.what, next=error.next) from error
        return data.run_download(config.checked(), request, as_json=bool(config.values.get("json")))

    _main("ng_download_dataset_from_hf", command)


def materialize_prompts() -> None:
    """`ng_materialize_prompts`: a dataset with a prompt template applied."""

    def command() -> int:
        from gymnast.cli import data

        config = _config(sys.argv[1:], stub_policy=True)
        fields = CollectFields(config)
        source, template = fields.text("input_jsonl_fpath"), fields.text("prompt_config")
        target = Path(fields.text("output_jsonl_fpath"))
        return data.run_render(config.checked(), source, template, target, as_json=bool(config.values.get("json")))

    _main("ng_materialize_prompts", command)


def status() -> None:
    """`ng_status`: the table, and a line `N healthy, M unhealthy`."""

    def command() -> int:
        from gymnast.cli import status as status_command

        config = _config(sys.argv[1:], stub_policy=True)
        return status_command.run(None, config, as_json=bool(config.values.get("json")))

    _main("ng_status", command)


def dump_config() -> None:
    """`ng_dump_config`: the merged YAML."""

    def command() -> int:
        from gymnast.cli.config import masked_yaml

        print(masked_yaml(_config(sys.argv[1:], stub_policy=True).checked()), end="")
        return 0

    _main("ng_dump_config", command)


def validate() -> None:
    """`ng_validate`: all problems at once."""

    def command() -> int:
        from gymnast.cli.config import check

        config = _config(sys.argv[1:], stub_policy=True)
        return check(config, as_json=bool(config.values.get("json")), bad_code=CONFIG_ERROR)

    _main("ng_validate", command)


def version() -> None:
    """`ng_version`: the version."""
    print(f"gymnast {__version__}")


def help() -> None:  # noqa: A001 - the command's name
    """`ng_help`: the commands."""
    for name, text in COMMANDS.items():
        print(f"{name:<27} {text}")


class CollectFields:
    """The command fields of `ng_collect_rollouts`, checked."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._values = config.values

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or not value:
            raise FieldError(f"+{name}=… is required", next=f"add +{name}=PATH")
        return value

    def optional(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is not None and not isinstance(value, str):
            raise FieldError(f"{name} must be a text, not {value!r}")
        return value or None

    def one_of(self, name: str, known: Collection[str]) -> str:
        value = self.text(name)
        if value not in known:
            raise FieldError(f"{name} cannot be '{value}'", next=suggest(value, known))
        return value

    def plan(self) -> Any:
        from gymnast.rollouts.plan import PlanOptions
        from gymnast.rollouts.prompt import read_template
        from gymnast.rollouts.skills import skills_ref

        roots, template = self._config.roots, self._values.get("prompt_config")
        skills = (self._values.get("skills") or {}).get("path")
        return PlanOptions(
            agent=self.optional("agent_name"),
            repeats=self._repeats(),
            limit=self._positive("limit"),
            add_seed=bool(self._values.get("num_repeats_add_seed")),
            params=self._values.get("responses_create_params") or {},
            deep_merge=False,
            template=read_template(roots.require(template, "prompt_config")) if template else None,
            skills=skills_ref(roots.require(skills, "skills.path"), skills) if skills else None,
        )

    def engine(self) -> Any:
        from gymnast.config import read_environ
        from gymnast.rollouts.budget import Budget
        from gymnast.rollouts.engine import EngineOptions
        from gymnast.rollouts.retry import RetryPolicy

        retry = RetryPolicy(max_attempts=read_environ().max_attempts)
        budget = Budget(self._amount("max_cost"), self._positive("max_tokens"))
        return EngineOptions(self._positive("num_samples_in_parallel"), retry=retry, budget=budget)

    def _repeats(self) -> int | dict[str, int]:
        value = self._values.get("num_repeats")
        if isinstance(value, dict):
            for name, count in value.items():
                if not _is_positive(count):
                    raise FieldError(f"num_repeats.{name} must be a whole number from 1, not {count!r}")
            return value
        return self._positive("num_repeats") or 1

    def _amount(self, name: str) -> float | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise FieldError(f"{name} must be a number above 0, not {value!r}")
        return float(value)

    def _positive(self, name: str) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not _is_positive(value):
            raise FieldError(f"{name} must be a whole number from 1, not {value!r}")
        return int(value)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _config(arguments: list[str], *, stub_policy: bool = False) -> Config:
    from gymnast.config import load_config, read_environ

    flags = [argument for argument in arguments if argument.startswith("-")]
    if flags:
        hint = suggest(flags[0].lstrip("-"), ("config_paths", "agent_name", "input_jsonl_fpath", "output_jsonl_fpath"))
        raise FieldError(f"there is no option {flags[0]}", next=f"arguments look like +key=value; {hint}")
    config = load_config(arguments, environ=read_environ(), stub_policy=stub_policy)
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return config


def _names_configs(arguments: list[str]) -> bool:
    return any(argument.lstrip("+").startswith("config_paths=") for argument in arguments)


def _main(name: str, command: Callable[[], int]) -> None:
    if any(argument in {"-h", "--help"} for argument in sys.argv[1:]):
        print(f"{name}: {COMMANDS[name]}")
        sys.exit(0)

    def checked() -> int:
        try:
            return command()
        except FieldError as error:
            say_error(str(error))
            return FIELD_ERROR

    sys.exit(guarded(checked, user_error_code=CONFIG_ERROR))
