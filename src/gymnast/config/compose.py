"""A configuration from the arguments of commands and library calls: environments, a model type, an endpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gymnast.config.keyring import key_reference
from gymnast.config.load import load_config
from gymnast.config.roots import Roots
from gymnast.config.urls import BadUrl, parse_base_url
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.config.environ import Environ
    from gymnast.config.known_keys import KnownKeys
    from gymnast.config.load import Config, Unread


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
    command_keys: KnownKeys | None = None,
    unread: Unread = "refuse",
    agent: str | None = None,
) -> Config:
    """Resolve names to config files and load them. An endpoint without a model server gets `vllm_model`, and that of
    Anthropic `anthropic_model`.

    `values` are settings that are not texts. They override files and env.yaml, and are overridden by overrides.
    `command_keys`, `unread` and `agent`: see `load_config`.
    """
    roots = Roots((*search_dirs, *environ.extra_roots), Path.cwd())
    paths = [*config_paths, *(config_path("resources_servers", name) for name in environments)]
    if model_type:
        paths.append(_model_config(model_type, roots))
    elif model_url is not None:
        server = _SERVER_OF_HOST.get(urlsplit(_parse_model_url(model_url)).hostname or "", "vllm_model")
        if not _names_model(paths, overrides, server):
            paths.append(_model_config(server, roots))
    initial: dict[str, Any] = dict(values or {})
    written_url = model_url
    if model_url is not None:
        model_url = _parse_model_url(model_url)
        initial["policy_base_url"] = model_url
    if model_key_name is not None:
        initial["policy_api_key"] = key_reference(model_key_name)
    if model is not None:
        initial["policy_model_name"] = model
    config = load_config(
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
        agent=agent,
    )
    if model_url != written_url:
        return replace(config, notes=(*config.notes, f"--model-url {written_url} is read as {model_url}"))
    return config


def _parse_model_url(text: str) -> str:
    try:
        return parse_base_url(text)
    except BadUrl as error:
        raise UserError(f"--model-url: {error}", next="pass a base URL such as http://127.0.0.1:8000/v1") from error


def _names_model(paths: Sequence[str], overrides: Sequence[str], server: str) -> bool:
    """Whether the policy's server is configured by name: not by a judge's, nor by settings of `server`."""
    mentions = [text for text in (*paths, *overrides) if "responses_api_models/" in text]
    mentions += [text for text in overrides if text.lstrip("+~").startswith("policy_model.responses_api_models")]
    return any(f"responses_api_models.{server}." not in text for text in mentions)


def _model_config(name: str, roots: Roots) -> str:
    """The config of a model server; `anthropic` is short for `anthropic_model`, unless there is one of that name."""
    path = config_path("responses_api_models", name)
    whole = config_path("responses_api_models", f"{name}_model")
    return whole if roots.find(path) is None and roots.find(whole) is not None else path


def config_path(kind: str, name: str) -> str:
    """`mcqa` or `math_with_judge/dapo17k` as a config path."""
    folder, _, flavor = name.partition("/")
    return f"{kind}/{folder}/configs/{flavor or folder}.yaml"
