"""A configuration from the arguments of commands and library calls: environments, a model type, an endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gymnast.config.keyring import key_reference
from gymnast.config.load import load_config
from gymnast.config.roots import Roots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.config.environ import Environ
    from gymnast.config.load import Config


_SERVER_OF_HOST: Final = {"api.anthropic.com": "anthropic_model"}


def compose(
    environ: Environ,
    *,
    overrides: Sequence[str] = (),
    config_paths: Sequence[str] = (),
    environments: Sequence[str] = (),
    model_type: str | None = None,
    model: str | None = None,
    model_url: str | None = None,
    model_key_name: str | None = None,
    search_dirs: Sequence[Path] = (),
    values: Mapping[str, Any] | None = None,
    stub_policy: bool = False,
) -> Config:
    """Resolve names to config files and load them. An endpoint without a model server gets `vllm_model`, and that of
    Anthropic `anthropic_model`.

    `values` are settings that are not texts. They override files and env.yaml, and are overridden by overrides.
    """
    roots = Roots((*search_dirs, *environ.extra_roots), Path.cwd())
    paths = [*config_paths, *(config_path("resources_servers", name) for name in environments)]
    if model_type:
        paths.append(_model_config(model_type, roots))
    elif model_url and not any("responses_api_models" in path for path in [*paths, *overrides]):
        paths.append(_model_config(_SERVER_OF_HOST.get(urlsplit(model_url).hostname or "", "vllm_model"), roots))
    initial: dict[str, Any] = dict(values or {})
    if model_url is not None:
        initial["policy_base_url"] = model_url
    if model_key_name is not None:
        initial["policy_api_key"] = key_reference(model_key_name)
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
    )


def _model_config(name: str, roots: Roots) -> str:
    """The config of a model server; `anthropic` is short for `anthropic_model`, unless there is one of that name."""
    path = config_path("responses_api_models", name)
    whole = config_path("responses_api_models", f"{name}_model")
    return whole if roots.find(path) is None and roots.find(whole) is not None else path


def config_path(kind: str, name: str) -> str:
    """`mcqa` or `math_with_judge/dapo17k` as a config path."""
    folder, _, flavor = name.partition("/")
    return f"{kind}/{folder}/configs/{flavor or folder}.yaml"
