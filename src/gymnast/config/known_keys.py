"""The top-level keys that Gymnast reads, and overrides of keys that nothing reads.

A native server sees only its own block, so a top-level override matters only if Gymnast reads it, a block uses it
(`${key}`, `_inherit_from`), or it is a server. Servers written for NeMo Gym may read any key: it is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gymnast.config import tree
from gymnast.errors import Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gymnast.config.instances import Instance
    from gymnast.config.overrides import Override
    from gymnast.config.tree import Node

KnownKeys = Mapping[str, frozenset[str] | None]
"""Keys that are read; for a mapping with fixed keys, those."""
POLICY_KEYS: Final = frozenset({"policy_base_url", "policy_api_key", "policy_model_name"})
GLOBAL_KEYS: Final[KnownKeys] = {
    "config_paths": None,
    "head_server": frozenset({"host", "port"}),
    "default_host": None,
    "use_absolute_ip": None,
    "error_on_almost_servers": None,
    "error_on_unknown_settings": None,
    "nemo_gym_log_dir": None,
    "ray_head_node_address": None,
    "model_endpoint_readiness_timeout_seconds": None,
    "global_aiohttp_connector_limit": None,
    "global_aiohttp_connector_limit_per_host": None,
    "global_aiohttp_client_request_debug": None,
    "max_reply_mib": None,
    "responses_create_params": None,
    "token_form": None,
    "observability_enabled": None,
    "reproducible_records": None,
    "model_call_capture_dir": None,
    "hf_token": None,
    "agent_settings": None,
    **dict.fromkeys(POLICY_KEYS),
}
"""Keys that every command understands."""
RUN_KEYS: Final[KnownKeys] = {
    "agent_name": None,
    "agent_map": None,
    "input_jsonl_fpath": None,
    "output_jsonl_fpath": None,
    "limit": None,
    "num_repeats": None,
    "num_repeats_add_seed": None,
    "num_samples_in_parallel": None,
    "resume_from_cache": None,
    "prompt_config": None,
    "skills": frozenset({"path"}),
    "disable_aggregation": None,
    "no_preflight": None,
    "retry_failed": None,
    "skip_bad_rows": None,
    "split": None,
    "max_cost": None,
    "max_tokens": None,
}
"""Fields of NeMo Gym's collection, which commands that collect understand."""
WITHOUT_EFFECT: Final = frozenset(
    {
        "allow_openai_version_skew", "cache_dir", "delete_venvs_after_each_test",
        "disable_health_check", "disallowed_ports", "dry_run", "head_server_deps",
        "mlflow_experiment_name", "mlflow_run_name", "mlflow_tracking_token", "mlflow_tracking_uri",
        "pip_install_verbose", "port_range_high", "port_range_low", "profiling_enabled",
        "profiling_results_dirpath", "python_version", "results_dir",
        "route_failures_to_sidecar", "skip_venv_if_present", "upload_rollouts", "upload_rollouts_to_wandb",
        "uv_cache_dir", "uv_pip_set_python", "uv_venv_dir", "uvicorn_logging_show_200_ok",
        "uvicorn_timeout_worker_healthcheck", "verbose", "wandb_api_key", "wandb_name", "wandb_project",
    }
)  # fmt: skip
"""Keys of NeMo Gym that change nothing here; a command that sets one gets a warning."""

_SAMPLING: Final = frozenset(
    {"temperature", "top_p", "max_output_tokens", "input", "instructions", "reasoning", "tools"}
)
_REFERENCE: Final = re.compile(r"\$\{(?:(?:inherit_from|swap_key|copy):\s*)?([A-Za-z_][\w-]*)")
_DIRECTIVES: Final = frozenset({"_inherit_from", "_copy"})


def unread_overrides(
    overrides: Sequence[Override],
    written: Node,
    servers: Collection[str],
    command_keys: KnownKeys,
) -> Iterator[Problem]:
    """A problem for each override that sets a key which nothing reads. `written` is the tree before directives."""
    known = {**GLOBAL_KEYS, **command_keys}
    used = {*servers, *_references(written), *WITHOUT_EFFECT}
    for override in overrides:
        if override.action != "set" or not override.path:
            continue
        name = str(override.path[0])
        if name in known:
            yield from _unread_inner(override, name, known[name])
        elif name not in used:
            names = [*known, *(key for key in used if key in written.value or key in servers)]
            hint = _suggest_path(name, written) or suggest(name, names)
            yield Problem(f"nothing reads '{name}'", where=_where(override), next=hint)


def warn_without_effect(overrides: Iterable[Override], written: Node, model_options: Mapping[str, str]) -> list[str]:
    """Warnings for overrides that Gymnast does not need, and for the policy's keys if no model reads them.

    `model_options` are options that set a key of the policy, by that key."""
    read = _references(written)
    texts = {
        str(override.path[0]): override.shown for override in overrides if override.action == "set" and override.path
    }
    without_effect = {key: shown for key, shown in texts.items() if key in WITHOUT_EFFECT - read}
    warnings = [f"'{shown}' has no effect in Gymnast{_instead(key)}" for key, shown in without_effect.items()]
    policy = {**{key: f"'{shown}'" for key, shown in texts.items() if key in POLICY_KEYS}, **model_options}
    return warnings + [
        f"{shown} has no effect: no configured model reads {key}" for key, shown in policy.items() if key not in read
    ]


def _instead(key: str) -> str:
    tracker = key.partition("_")[0]
    return f"; use --track {tracker}" if tracker in {"wandb", "mlflow"} else ""


def may_read_any_key(instances: Iterable[Instance]) -> bool:
    """Whether a server could read top-level keys itself: only those built with the kit are sure not to."""
    return any(_is_foreign(instance) for instance in instances)


def _is_foreign(instance: Instance) -> bool:
    if instance.directory is None or instance.entrypoint is None:
        return False
    try:
        text = (instance.directory / instance.entrypoint).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return True
    return "gymnast" not in text


def _suggest_path(name: str, root: Node) -> str | None:
    """Where the key would be read: in a row's create params, or in a block that has it."""
    if name in _SAMPLING:
        return f"did you mean 'responses_create_params.{name}'?"
    paths = [tree.show_path(path) for path, _ in tree.walk(root) if len(path) == 4 and path[-1] == name]
    return f"did you mean '{paths[0]}'?" if len(paths) == 1 else None


def _unread_inner(override: Override, name: str, inner: frozenset[str] | None) -> Iterator[Problem]:
    if inner is None:
        return
    given: list[Any] = list(override.path[1:2]) or (list(override.value) if isinstance(override.value, dict) else [])
    for key in given:
        if str(key) not in inner:
            yield Problem(f"nothing reads '{name}.{key}'", where=_where(override), next=suggest(str(key), inner))


def _references(root: Node) -> set[str]:
    """The top-level keys that values refer to."""
    names: set[str] = set()
    for path, node in tree.walk(root):
        if not isinstance(node.value, str):
            continue
        names.update(_REFERENCE.findall(node.value))
        if _DIRECTIVES & {str(step) for step in path[-2:]}:
            names.update(part.strip().partition(".")[0] for part in node.value.split(","))
    return names


def _where(override: Override) -> str:
    return f"override '{override.shown}'"
