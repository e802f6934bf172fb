"""The `ng_*` commands: Hydra-style arguments only, behaviour and exit codes as their users know them.

A configuration that is wrong ends with exit code 1 and one message; a command field that is missing or invalid with 2.
What they do is in the `ng_…` modules beside this one, which `gymnast gym` uses as well.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from gymnast import __version__
from gymnast.cli.main import guarded, say_error
from gymnast.compat import (
    ng_aggregate,
    ng_benchmarks,
    ng_collect,
    ng_config,
    ng_data,
    ng_listing,
    ng_servers,
    ng_upload,
    ng_viewer,
)
from gymnast.compat.ng_asked import Asked, FieldError, from_words

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG_ERROR: Final = 1
FIELD_ERROR: Final = 2


class Command(NamedTuple):
    """One command: what it does, the command of ours that does the same, and the work."""

    about: str
    ours: str
    work: Callable[[Asked], int]


def _help(_: Asked) -> int:
    for name, text in COMMANDS.items():
        print(f"{name:<32} {text}")
    return 0


def _version(_: Asked) -> int:
    print(f"gymnast {__version__}")
    return 0


_GITLAB: Final = "none"
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
        "files of several jobs as one, with metrics: +input_glob='a-*.jsonl' +output_jsonl_fpath=O",
        "gymnast merge (for runs with many workers)",
        ng_aggregate.aggregate_rollouts,
    ),
    "ng_reward_profile": Command(
        "profile: ng_reward_profile +materialized_inputs_jsonl_fpath=I +rollouts_jsonl_fpath=R",
        "gymnast profile",
        ng_collect.reward_profile,
    ),
    "ng_viewer": Command(
        "show the report of a run in the browser: ng_viewer +jsonl_fpath=R, several with commas",
        "gymnast report",
        ng_viewer.viewer,
    ),
    "ng_prepare_data": Command(
        "put configured datasets together: +config_paths=[…] +mode=train_preparation +output_dirpath=D",
        "gymnast data prepare",
        ng_data.prepare_data,
    ),
    "ng_list_benchmarks": Command(
        "list the benchmarks of the checkout: ng_list_benchmarks [+json=true]",
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
        ng_upload.upload_dataset_to_hf,
    ),
    "ng_download_dataset_from_gitlab": Command(ng_data.NO_GITLAB, _GITLAB, ng_data.gitlab),
    "ng_upload_dataset_to_gitlab": Command(ng_data.NO_GITLAB, _GITLAB, ng_data.gitlab),
    "ng_delete_dataset_from_gitlab": Command(ng_data.NO_GITLAB, _GITLAB, ng_data.gitlab),
    "ng_gitlab_to_hf_dataset": Command(ng_data.NO_GITLAB, _GITLAB, ng_data.gitlab),
    "ng_init_resources_server": Command(
        "begin an environment: +entrypoint=resources_servers/NAME [+kind=single-turn|tools|step]",
        "gymnast env new",
        ng_servers.init_resources_server,
    ),
    "ng_test": Command(
        "run the tests of a server: ng_test +entrypoint=resources_servers/NAME",
        "gymnast gym env test --resources-server NAME",
        ng_servers.test,
    ),
    "ng_test_all": Command(
        "run the tests of all servers of a checkout: [+num_shards=N +shard_index=I +should_validate_data=true]",
        "gymnast gym env test",
        ng_servers.test_all,
    ),
    "ng_dev_test": Command(
        "run the tests of the project in this folder, with coverage where pytest-cov is installed",
        "pytest",
        ng_servers.dev_test,
    ),
    "ng_pip_list": Command(
        "list the packages of a server: ng_pip_list +entrypoint=resources_servers/NAME [+outdated=true]",
        "gymnast gym env packages",
        ng_servers.pip_list,
    ),
    "ng_reinstall": Command(
        "install the project in this folder again, with what its development needs",
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
COMMANDS: Final = {name: command.about for name, command in TABLE.items()}
"""What each command does, in a line."""


def enter(name: str) -> None:
    """Run the command of that name with the arguments of this process."""
    words = sys.argv[1:]
    if any(word in {"-h", "--help"} for word in words):
        command = TABLE[name]
        print(f"{name}: {command.about}\n\nThe same in Gymnast's own words: {command.ours}")
        print(
            "Arguments look like +key=value (Hydra); config files are looked up in NEMO_GYM_EXTRA_ROOTS, here, the hub."
        )
        sys.exit(0)
    sys.exit(ended(lambda: TABLE[name].work(from_words(words))))


def ended(work: Callable[[], int]) -> int:
    """Run work; the exit code is the one that its users know."""

    def checked() -> int:
        try:
            return work()
        except FieldError as error:
            say_error(str(error))
            return FIELD_ERROR

    return guarded(checked, user_error_code=CONFIG_ERROR)


# What the scripts start.
run = partial(enter, "ng_run")
collect_rollouts = partial(enter, "ng_collect_rollouts")
e2e_collect_rollouts = partial(enter, "ng_e2e_collect_rollouts")
aggregate_rollouts = partial(enter, "ng_aggregate_rollouts")
reward_profile = partial(enter, "ng_reward_profile")
viewer = partial(enter, "ng_viewer")
prepare_data = partial(enter, "ng_prepare_data")
list_benchmarks = partial(enter, "ng_list_benchmarks")
prepare_benchmark = partial(enter, "ng_prepare_benchmark")
materialize_prompts = partial(enter, "ng_materialize_prompts")
download_dataset_from_hf = partial(enter, "ng_download_dataset_from_hf")
upload_dataset_to_hf = partial(enter, "ng_upload_dataset_to_hf")
download_dataset_from_gitlab = partial(enter, "ng_download_dataset_from_gitlab")
upload_dataset_to_gitlab = partial(enter, "ng_upload_dataset_to_gitlab")
delete_dataset_from_gitlab = partial(enter, "ng_delete_dataset_from_gitlab")
gitlab_to_hf_dataset = partial(enter, "ng_gitlab_to_hf_dataset")
init_resources_server = partial(enter, "ng_init_resources_server")
test = partial(enter, "ng_test")
test_all = partial(enter, "ng_test_all")
dev_test = partial(enter, "ng_dev_test")
pip_list = partial(enter, "ng_pip_list")
reinstall = partial(enter, "ng_reinstall")
status = partial(enter, "ng_status")
dump_config = partial(enter, "ng_dump_config")
validate = partial(enter, "ng_validate")
version = partial(enter, "ng_version")
help = partial(enter, "ng_help")  # noqa: A001 - the command's name
