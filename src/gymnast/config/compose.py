"""A configuration from the arguments of commands and library calls: environments, a model type, an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.config.load import load_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gymnast.config.environ import Environ
    from gymnast.config.known_keys import KnownKeys
    from gymnast.config.load import Config, Unread


def compose(
    environ: Environ,
    *,
    overrides: Sequence[str] = (),
    config_paths: Sequence[str] = (),
    environments: Sequence[str] = (),
    model_type: str | None = None,
    model: str | None = None,
    model_url: str | None = None,
    search_dirs: Sequence[Path] = (),
    values: Mapping[str, Any] | None = None,
    stub_policy: bool = False,
    command_keys: KnownKeys | None = None,
    unread: Unread = "refuse",
) -> Config:
    """Resolve names to config files and load them. An endpoint without a model server gets `vllm_model`.

    `values` are settings that are not texts. They override files and env.yaml, and are overridden by overrides.
    `command_keys` and `unread`: see `load_config`.
    """
    paths = [*config_paths, *(config_path("resources_servers", name) for name in environments)]
    if model_type:
        paths.append(config_path("responses_api_models", model_type))
    elif model_url and not any("responses_api_models" in path for path in [*paths, *overrides]):
        paths.append(config_path("responses_api_models", "vllm_model"))
    initial: dict[str, Any] = dict(values or {})
    if model_url is not None:
        initial["policy_base_url"] = model_url
    if model is not None:
        initial["policy_model_name"] = model
    return load_config(
        overrides,
        environ=environ,
        config_paths=paths,
        search_dirs=search_dirs,
        initial=initial,
        defaults={"policy_api_key": ""} if model_url is not None else None,
        stub_policy=stub_policy,
        command_keys=command_keys,
        unread=unread,
        model_options={"policy_base_url": "--model-url"} if model_url is not None else None,
    )


def config_path(kind: str, name: str) -> str:
    """`mcqa` or `math_with_judge/dapo17k` as a config path."""
    folder, _, flavor = name.partition("/")
    return f"{kind}/{folder}/configs/{flavor or folder}.yaml"
