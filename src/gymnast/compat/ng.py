"""The `ng_*` commands, with NeMo Gym's Hydra-style arguments and exit codes.

A wrong configuration exits with 1 and one message, a missing or invalid command field with 2. The `ng_…` modules next
to this one do the work, also for `gymnast gym`.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gymnast.cli.main import print_error, run_guarded
from gymnast.compat import (
    ng_aggregate,
    ng_benchmarks,
    ng_collect,
    ng_config,
    ng_data,
    ng_listing,
    ng_registry,
    ng_servers,
    ng_viewer,
)
from gymnast.compat.ng_arguments import FieldError, Fields, NgArguments, in_fields, parse_words
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG_ERROR: Final = 1
FIELD_ERROR: Final = 2


class Command(NamedTuple):
    """A command: its help, the equivalent `gymnast` command, and the function that runs it."""

    about: str
    equivalent: str
    work: Callable[[NgArguments], int]


def _help(_: NgArguments) -> int:
    for name, text in COMMANDS.items():
        print(f"{name:<32} {text}")
    return 0


def _version(arguments: NgArguments) -> int:
    from gymnast.compat.ng_version import print_version

    print_version(as_json=Fields(arguments.config(stub_policy=True)).flag("json"))
    return 0


TABLE: Final[dict[str, Command]] = {
    "ng_run": Command(
        "serve the configured instances and the head server: ng_run +config_paths=[a.yaml,b.yaml]",
        "gymnast serve",
        ng_servers.run,
    ),
    "ng_collect_rollouts": Command(
        "collect: ng_collect_rollouts +agent_name=A +input_jsonl_fpath=I +output_jsonl_fpath=O",
        "gymnast collect",
        ng_collect.collect_rollouts,
    ),
    "ng_e2e_collect_rollouts": Command(
        "serve and collect a configured split: +config_paths=[…] +split=S +output_jsonl_fpath=O",
        "gymnast collect --split",
        ng_collect.e2e_collect_rollouts,
    ),
    "ng_aggregate_rollouts": Command(
        "merge the files of several jobs and compute metrics: +input_glob='a-*.jsonl' +output_jsonl_fpath=O",
        "gymnast merge (for submitted runs)",
        ng_aggregate.aggregate_rollouts,
    ),
    "ng_reward_profile": Command(
        "profile: ng_reward_profile +materialized_inputs_jsonl_fpath=I +rollouts_jsonl_fpath=R",
        "gymnast profile",
        ng_collect.reward_profile,
    ),
    "ng_viewer": Command(
        "show one or more runs in the browser: ng_viewer +jsonl_fpath=R[,R2]",
        "gymnast view",
        ng_viewer.viewer,
    ),
    "ng_prepare_data": Command(
        "combine the configured datasets: +config_paths=[…] +mode=train_preparation +output_dirpath=D",
        "gymnast data prepare",
        ng_data.prepare_data,
    ),
    "ng_list_benchmarks": Command(
        "list the benchmarks in the checkout: ng_list_benchmarks [+json=true]",
        "gymnast gym list benchmarks",
        ng_listing.list_benchmarks,
    ),
    "ng_prepare_benchmark": Command(
        "run the prepare scripts of configured benchmarks: +config_paths=[benchmarks/NAME/config.yaml]",
        "gymnast gym eval prepare",
        ng_benchmarks.prepare_benchmark,
    ),
    "ng_materialize_prompts": Command(
        "apply a template: +input_jsonl_fpath=I +prompt_config=P.yaml +output_jsonl_fpath=O",
        "gymnast data render",
        ng_data.materialize_prompts,
    ),
    "ng_download_dataset_from_hf": Command(
        "fetch: +repo_id=ORG/NAME +artifact_fpath=F +output_fpath=O, or +output_dirpath=D",
        "gymnast data download",
        ng_data.download_dataset_from_hf,
    ),
    "ng_upload_dataset_to_hf": Command(
        "publish: +input_jsonl_fpath=I +hf_organization=ORG +dataset_name=N [+split=train]",
        "gymnast gym dataset upload",
        ng_registry.upload_to_hf,
    ),
    "ng_download_dataset_from_gitlab": Command(
        "fetch from a GitLab model registry: +dataset_name=N +version=V +artifact_fpath=F +output_fpath=O",
        "gymnast gym dataset download --storage gitlab",
        ng_registry.download_from_gitlab,
    ),
    "ng_upload_dataset_to_gitlab": Command(
        "upload a file to a GitLab model registry: +dataset_name=N +version=V +input_jsonl_fpath=I",
        "gymnast gym dataset upload --storage gitlab",
        ng_registry.upload_to_gitlab,
    ),
    "ng_delete_dataset_from_gitlab": Command(
        "delete a dataset from a GitLab model registry, after a confirmation: +dataset_name=N",
        "gymnast gym dataset rm",
        ng_registry.delete_from_gitlab,
    ),
    "ng_gitlab_to_hf_dataset": Command(
        "publish on the Hub, then delete from the GitLab model registry: as ng_upload_dataset_to_hf",
        "gymnast gym dataset migrate",
        ng_registry.migrate_to_hf,
    ),
    "ng_init_resources_server": Command(
        "create an environment: +entrypoint=resources_servers/NAME [+kind=single-turn|tools|step]",
        "gymnast env new",
        ng_servers.init_resources_server,
    ),
    "ng_test": Command(
        "run the tests of a server, or of all: ng_test [+entrypoint=resources_servers/NAME]",
        "gymnast gym env test --resources-server NAME",
        ng_servers.env_test,
    ),
    "ng_test_all": Command(
        "run the tests of all servers of a checkout: [+num_shards=N +shard_index=I +should_validate_data=true]",
        "gymnast gym env test",
        ng_servers.env_test,
    ),
    "ng_dev_test": Command(
        "run the tests of the project in this folder, with coverage if pytest-cov is installed",
        "pytest",
        ng_servers.dev_test,
    ),
    "ng_pip_list": Command(
        "list the packages of a server: ng_pip_list +entrypoint=resources_servers/NAME [+outdated=true]",
        "gymnast gym env packages",
        ng_servers.pip_list,
    ),
    "ng_reinstall": Command(
        "reinstall the project in this folder with its development dependencies",
        "uv sync --extra dev",
        ng_servers.reinstall,
    ),
    "ng_status": Command("show the health of running servers", "gymnast status", ng_servers.status),
    "ng_dump_config": Command(
        "print the resolved configuration, secrets masked", "gymnast config show", ng_config.dump_config
    ),
    "ng_validate": Command(
        "check a configuration without starting anything", "gymnast config validate", ng_config.validate
    ),
    "ng_version": Command("print the version", "gymnast version", _version),
    "ng_help": Command("print this list", "gymnast --help", _help),
}
SAME_AS: Final = {
    "ng_run": ("env", "start"),
    "ng_collect_rollouts": ("eval", "run"),
    "ng_e2e_collect_rollouts": ("eval", "run"),
    "ng_aggregate_rollouts": ("eval", "aggregate"),
    "ng_reward_profile": ("eval", "profile"),
    "ng_prepare_data": ("dataset", "collate"),
    "ng_list_benchmarks": ("list", "benchmarks"),
    "ng_prepare_benchmark": ("eval", "prepare"),
    "ng_materialize_prompts": ("dataset", "render"),
    "ng_download_dataset_from_hf": ("dataset", "download"),
    "ng_upload_dataset_to_hf": ("dataset", "upload"),
    "ng_download_dataset_from_gitlab": ("dataset", "download"),
    "ng_upload_dataset_to_gitlab": ("dataset", "upload"),
    "ng_delete_dataset_from_gitlab": ("dataset", "rm"),
    "ng_gitlab_to_hf_dataset": ("dataset", "migrate"),
    "ng_init_resources_server": ("env", "init"),
    "ng_test": ("env", "test"),
    "ng_test_all": ("env", "test"),
    "ng_dev_test": ("dev", "test"),
    "ng_pip_list": ("env", "packages"),
    "ng_status": ("env", "status"),
    "ng_dump_config": ("env", "resolve"),
    "ng_validate": ("env", "validate"),
}
"""The `gym` command whose options a command takes, too."""
COMMANDS: Final = {name: command.about for name, command in TABLE.items()}
"""The help line of each command."""


def run_command(name: str) -> None:
    """Run a command with the arguments of this process."""
    words = sys.argv[1:]
    if any(word in {"-h", "--help"} for word in words):
        command = TABLE[name]
        print(f"{name}: {command.about}\n\nEquivalent: {command.equivalent}")
        print(
            "Arguments are +key=value (Hydra). Config files are searched in NEMO_GYM_EXTRA_ROOTS, here, the built-ins."
        )
        sys.exit(0)
    sys.exit(run_work(lambda: run_words(name, words)))


def run_words(name: str, words: list[str]) -> int:
    """Run a command; long options and names are those of the `gym` command."""
    if name in SAME_AS and any(word.startswith("-") or "=" not in word for word in words if word[:1] != "~"):
        from gymnast.compat.gym_parser import search_roots, translate

        command, arguments = translate([*SAME_AS[name], *words], search_roots)
        has_name = bool({"component_name", "onboarding_name"} & set(command.positionals))
        return command.work(arguments) if has_name else TABLE[name].work(arguments)
    if name == "ng_help":
        return _help(NgArguments())
    if name == "ng_version" and words == ["--json"]:
        words = ["+json=true"]
    return TABLE[name].work(parse_words(words))


def run_work(work: Callable[[], int]) -> int:
    """Run a command; return the exit code that NeMo Gym would."""

    def report_field_errors() -> int:
        try:
            return work()
        except FieldError as error:
            print_error(str(error))
            return FIELD_ERROR
        except UserError as error:
            error.next = in_fields(error.next) if error.next else None
            raise

    return run_guarded(report_field_errors, user_error_code=CONFIG_ERROR)


def __getattr__(name: str) -> Callable[[], None]:
    """The entry points of the scripts: `collect_rollouts` runs `ng_collect_rollouts`."""
    if f"ng_{name}" not in TABLE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return partial(run_command, f"ng_{name}")
