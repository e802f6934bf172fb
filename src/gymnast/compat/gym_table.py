"""The commands of NeMo Gym's `gym`: their options with the keys they set, and the functions that run them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gymnast.compat import (
    ng_aggregate,
    ng_benchmarks,
    ng_collect,
    ng_config,
    ng_data,
    ng_listing,
    ng_publish,
    ng_registry,
    ng_servers,
    ng_submit,
)
from gymnast.compat.ng_components import KINDS
from gymnast.compat.ng_init import PROFILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gymnast.compat.ng_arguments import NgArguments


class Option(NamedTuple):
    """What a long option does: sets a key, or selects a config (`@…`).

    With `convert=bool` it takes no value and sets `constant`; with more `values` it takes several, which `convert`
    gets as one text with spaces.
    """

    key: str
    convert: Callable[[str], Any] = str
    values: int = 1
    constant: Any = True

    @property
    def takes_value(self) -> bool:
        """Whether a value follows."""
        return self.convert is not bool

    @property
    def description(self) -> str:
        """The help text."""
        return _PICKS.get(self.key) or f"sets {self.key.replace(',', ' and ')}"

    @property
    def expected(self) -> str:
        """What its value has to be, for the message about another one."""
        if isinstance(self.convert, _OneOf):
            return f"expected {' or '.join(self.convert.known)}"
        numbers: Mapping[Callable[[str], Any], str] = {int: "a whole number", float: "a number", _numbers: "numbers"}
        return f"expected {numbers[self.convert]}" if self.convert in numbers else self.description


_PICKS: Final = {
    "@config": "config file; repeatable",
    "@benchmark": "benchmarks/NAME/config.yaml",
    "@environment": "environments/NAME/config.yaml, or a resources server of that name",
    "@resources_server": "resources_servers/NAME/configs/NAME.yaml, NAME/FLAVOR for another",
    "@model_type": "responses_api_models/NAME/configs/NAME.yaml, NAME/FLAVOR for another",
    "@search_dir": "search this folder first for configs, servers and data; repeatable",
    "@model": "sets policy_model_name",
    "profile": f"{PROFILE}; to write your own loop, write an agent",
    "@model_url": "sets policy_base_url; served by vllm_model unless --model-type is set",
}


class GymCommand(NamedTuple):
    """A command: its help, the function that runs it, its options, positional arguments and preset values."""

    about: str
    work: Callable[[NgArguments], int]
    options: Mapping[str, Option]
    positionals: tuple[str, ...] = ()
    required: int = 0
    """How many of the positional arguments are required."""
    preset: Mapping[str, Any] = {}
    exclusive: tuple[frozenset[str], ...] = ()
    """Sets of options of which only one may be given."""

    @property
    def short(self) -> dict[str, str]:
        """Its short options, with the long ones they stand for."""
        glob = {"-i": "--input-glob"} if "--input-glob" in self.options else {}
        return {short: long for short, long in {**SHORT, **glob}.items() if long in self.options}


def _server(name: str) -> str:
    return f"resources_servers/{name}"


@dataclass(frozen=True, slots=True)
class _OneOf:
    """Accepts some texts."""

    known: tuple[str, ...]

    def __call__(self, text: str) -> str:
        if text not in self.known:
            raise ValueError(text)
        return text


def _one_of(*known: str) -> Callable[[str], str]:
    return _OneOf(known)


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split()]


SHORT: Final = {
    "-a": "--agent",
    "-c": "--config",
    "-i": "--input",
    "-m": "--model",
    "-o": "--output",
    "-v": "--verbose",
}
SHARED: Final = {
    "--config": Option("@config"),
    "--benchmark": Option("@benchmark"),
    "--environment": Option("@environment"),
    "--resources-server": Option("@resources_server"),
    "--model-type": Option("@model_type"),
    "--search-dir": Option("@search_dir"),
    "--model": Option("@model"),
    "--model-url": Option("@model_url"),
    "--model-api-key": Option("policy_api_key"),
    "--json": Option("json", bool),
    "--verbose": Option("verbose", bool),
}
_LOOK: Final = {key: SHARED[key] for key in ("--search-dir", "--json", "--verbose")}
_ENTRY: Final = {"--resources-server": Option("entrypoint", _server), **_LOOK}
_STORAGE: Final = {"--storage": Option("storage", _one_of("hf", "gitlab")), "--name": Option("dataset_name")}
_RUN: Final = {
    "--no-serve": Option("no_serve", bool),
    "--resume": Option("resume_from_cache", bool),
    "--agent": Option("agent_name"),
    "--input": Option("input_jsonl_fpath"),
    "--output": Option("output_jsonl_fpath"),
    "--limit": Option("limit", int),
    "--num-repeats": Option("num_repeats", int),
    "--prompt-config": Option("prompt_config"),
    "--concurrency": Option("num_samples_in_parallel", int),
    "--split": Option("split"),
    "--temperature": Option("responses_create_params.temperature", float),
    "--top-p": Option("responses_create_params.top_p", float),
    "--max-output-tokens": Option("responses_create_params.max_output_tokens", int),
    "--disable-aggregation": Option("disable_aggregation", bool),
}
_REVERIFY: Final = {
    "--inputs": Option("materialized_inputs_jsonl_fpath"),
    "--rollouts": Option("rollouts_jsonl_fpath"),
    "--output": Option("output_jsonl_fpath"),
    "--concurrency": Option("num_samples_in_parallel", int),
    "--limit": Option("limit", int),
    "--force": Option("force", bool),
    "--overwrite": Option("overwrite", bool),
    "--resume": Option("resume_from_cache", bool),
    "--disable-aggregation": Option("disable_aggregation", bool),
    "--judge-failed-only": Option("judge_failed_only", bool),
    "--append": Option("append", bool),
}
_UPLOAD: Final = {
    **_STORAGE,
    "--input": Option("input_jsonl_fpath"),
    "--revision": Option("version,revision"),
    "--split": Option("split"),
    "--create-pr": Option("create_pr", bool),
}
_DOWNLOAD: Final = {
    **_STORAGE,
    "--repo-id": Option("repo_id"),
    "--revision": Option("version,revision"),
    "--artifact": Option("artifact_fpath"),
    "--output": Option("output_fpath"),
    "--output-dir": Option("output_dirpath"),
    "--split": Option("split"),
}
_INIT: Final = {
    "--kind": Option("kind"),
    "--environment": Option("scaffold_environment"),
    "--benchmark": Option("scaffold_benchmark"),
    "--profile": Option("profile", _one_of(PROFILE)),
    "--reuse-verifier": Option("reuse_verifier"),
    "--reward-range": Option("reward_range", _numbers, 2),
    "--higher-is-better": Option("higher_is_better", bool),
    "--lower-is-better": Option("higher_is_better", bool, constant=False),
}
_WORKLOAD_KIND: Final = _one_of("environment", "benchmark")
_FILTERS: Final = {
    "--domain": Option("filter.domain"),
    "--kind": Option("filter.kind", _WORKLOAD_KIND),
    "--modality": Option("filter.modality"),
    "--licensing": Option("filter.licensing"),
    "--lifecycle": Option("filter.lifecycle", _one_of("active", "deprecated")),
    "--status": Option("filter.status", _one_of("experimental", "no-manifest")),
}
"""Filters on what a config and the `manifest.yaml` next to it say."""
_RENDER: Final = {
    "--input": Option("input_jsonl_fpath"),
    "--prompt-config": Option("prompt_config"),
    "--output": Option("output_jsonl_fpath"),
}
_COLLATE: Final = {
    "--mode": Option("mode"),
    "--output-dir": Option("output_dirpath"),
    "--download": Option("should_download", bool),
}


def _with_configs(
    about: str, work: Callable[[NgArguments], int], own: Mapping[str, Option] | None = None
) -> GymCommand:
    """A command that takes config files and the options that select them."""
    return GymCommand(about, work, {**SHARED, **(own or {})})


def _list(kind: str) -> GymCommand:
    about = f"list {kind.replace('-', ' ')}, or the one called NAME"
    options = {**_LOOK, **_FILTERS} if kind == "environments" else _LOOK
    return GymCommand(about, ng_listing.show, options, ("component_name",), preset={"kind": kind})


def _search(kind: str) -> GymCommand:
    about = f"search {kind.replace('-', ' ')} for a word"
    return GymCommand(about, ng_listing.show, _LOOK, ("query",), 1, preset={"kind": kind})


COMMANDS: Final[Mapping[tuple[str, ...], GymCommand]] = {
    **{("list", kind): _list(kind) for kind in KINDS},
    **{("search", kind): _search(kind) for kind in KINDS},
    ("search",): GymCommand("search environments and benchmarks for a word", ng_listing.show, _LOOK, ("query",), 1),
    ("env", "start"): _with_configs("serve instances and the head server until Ctrl-C", ng_servers.run),
    ("env", "status"): GymCommand("show the health of running servers", ng_servers.status, _LOOK),
    ("env", "resolve"): _with_configs("print the merged configuration, secrets masked", ng_config.dump_config),
    ("env", "validate"): GymCommand(
        "check a configuration, or that of NAME, without starting anything",
        ng_config.validate,
        {
            **SHARED,
            "--kind": Option("catalog_kind", _WORKLOAD_KIND),
            "--manifest": Option("manifest_path"),
            "--sync": Option("sync", bool),
        },
        ("onboarding_name",),
    ),
    ("env", "test"): GymCommand(
        "run the verifier cases of environment NAME, the tests of one server, or of all",
        ng_servers.env_test,
        {
            **_ENTRY,
            "--kind": Option("catalog_kind", _WORKLOAD_KIND),
            "--update-expected": Option("update_expected", bool),
        },
        ("onboarding_name",),
    ),
    ("env", "packages"): GymCommand(
        "list the packages of a server", ng_servers.pip_list, {**_ENTRY, "--outdated": Option("outdated", bool)}
    ),
    ("env", "init"): GymCommand(
        "create a working environment",
        ng_servers.init_resources_server,
        {**_ENTRY, **_INIT},
        exclusive=(
            frozenset({"--resources-server", "--environment", "--benchmark"}),
            frozenset({"--higher-is-better", "--lower-is-better"}),
        ),
    ),
    ("env", "prefetch"): _with_configs("install the packages of servers", ng_servers.prefetch),
    ("env", "publish"): GymCommand(
        "check that an environment or benchmark can be shared",
        ng_publish.publish,
        {**_LOOK, "--kind": Option("catalog_kind", _WORKLOAD_KIND)},
        ("onboarding_name",),
    ),
    ("eval", "prepare"): _with_configs("run the prepare scripts of benchmarks", ng_benchmarks.prepare_benchmark),
    ("eval", "run"): _with_configs(
        "start servers and collect rollouts, or use running ones with --no-serve", ng_collect.eval_run, _RUN
    ),
    ("eval", "aggregate"): _with_configs(
        "merge the files of several jobs and compute metrics",
        ng_aggregate.aggregate_rollouts,
        {
            "--input-glob": Option("input_glob"),
            "--output": Option("output_jsonl_fpath"),
        },
    ),
    ("eval", "reverify"): _with_configs("score stored rollouts again", ng_collect.reverify, _REVERIFY),
    ("eval", "profile"): _with_configs(
        "statistics per task and agent",
        ng_collect.reward_profile,
        {key: _REVERIFY[key] for key in ("--inputs", "--rollouts")},
    ),
    ("eval", "submit"): GymCommand(
        "submit a Slurm job per benchmark of a job file",
        ng_submit.submit,
        {
            "--config": Option("job_file"),
            "--dry-run": Option("dry_run", bool),
            "--verbose": SHARED["--verbose"],
        },
    ),
    ("dataset", "upload"): _with_configs(
        "publish a file on the Hub or in a GitLab model registry", ng_registry.dataset_upload, _UPLOAD
    ),
    ("dataset", "download"): _with_configs(
        "fetch from the Hub or a GitLab model registry", ng_registry.dataset_download, _DOWNLOAD
    ),
    ("dataset", "render"): _with_configs("apply a prompt template", ng_data.materialize_prompts, _RENDER),
    ("dataset", "collate"): _with_configs("put configured datasets together", ng_data.prepare_data, _COLLATE),
    ("dataset", "rm"): _with_configs(
        "delete a dataset from a GitLab model registry", ng_registry.delete_from_gitlab, _STORAGE
    ),
    ("dataset", "migrate"): _with_configs(
        "publish on the Hub, then delete from the GitLab model registry", ng_registry.migrate_to_hf, _UPLOAD
    ),
    ("dev", "test"): GymCommand("run the tests of the project in this folder", ng_servers.dev_test, _LOOK),
}
