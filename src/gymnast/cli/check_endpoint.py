"""`gymnast check endpoint`: what a policy endpoint supports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.config import Config, Instance


def endpoint(
    url: Annotated[
        str | None, typer.Argument(help="Base URL of the endpoint, including /v1. [default: the configured policy]")
    ] = None,
    overrides: shared.Overrides = None,
    *,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    model: shared.ModelName = None,
    instance: Annotated[
        str | None, typer.Option("--instance", help="Model instance to check, if several are configured.")
    ] = None,
    required: Annotated[
        list[str] | None,
        typer.Option("--require", help="A check that must pass for your run, e.g. tools_auto, token_ids. Repeatable."),
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a request may take.")] = 60.0,
    probe_context: Annotated[
        bool, typer.Option("--probe-context", help="Measure the context length with an oversized request.")
    ] = False,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Check what a policy endpoint supports, with a few tiny requests.

    Checks models, answer, usage, tools_auto, tools_forced, streaming, logprobs, token_ids, context and latency, and if
    required tools_parallel, json_schema, reasoning and images: each passes, fails or is unsupported, with what that
    means. Answers and tools go through the model server that a run would use. Exit 1 if a check does not pass that a
    run needs.
    """
    import asyncio
    import tempfile
    from functools import partial
    from pathlib import Path

    from gymnast.checks.endpoint import check_endpoint
    from gymnast.checks.endpoint_result import CHECKS, EndpointOptions
    from gymnast.config import read_environ
    from gymnast.config.urls import BadUrl, parse_base_url
    from gymnast.errors import suggest
    from gymnast.runtime.listener import loop_factory
    from gymnast.runtime.probe import endpoint_urls

    for name in required or ():
        if name not in CHECKS:
            raise typer.BadParameter(f"unknown check '{name}': {suggest(name, CHECKS)}", param_hint="--require")
    if url is not None and "://" not in url and ("=" in url or url.startswith("~")):  # an override, not an address
        overrides, url = [url, *(overrides or [])], None
    if url is not None:
        try:
            url = parse_base_url(url)
        except BadUrl as error:
            raise typer.BadParameter(str(error), param_hint="URL") from error
    with asyncio.Runner(loop_factory=loop_factory()) as runner, tempfile.TemporaryDirectory() as logs:
        load = partial(
            shared.load,
            overrides,
            config_files=config_files,
            environments=environments,
            model_type=model_type,
            search_dirs=search_dirs,
        )
        config = load(model=model or (url and "default"), model_url=url).require_valid()
        if url is not None:
            key = next((endpoint.key for endpoint in endpoint_urls([_policy(config, instance)]).values()), "")
            url, model = runner.run(_address(url, model, key, timeout_s))
            config = load(model=model, model_url=url).require_valid()
        options = EndpointOptions(frozenset(required or ()), timeout_s, probe_context)
        result = runner.run(check_endpoint(config, read_environ(), _policy(config, instance), options, Path(logs)))
    if as_json:
        shared.print_json(result.as_json())
    else:
        print("\n".join(result.lines()))
    return 0 if result.ok else 1


async def _address(url: str, model: str | None, key: str, timeout_s: float) -> tuple[str, str]:
    """Complete the URL with /v1 and look up the name of a model there, as far as the endpoint tells."""
    from gymnast.checks.endpoint_client import HttpEndpointClient
    from gymnast.wire.http_client import HttpClient

    url = url.rstrip("/")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with HttpClient() as client:
        for base in (url,) if url.endswith("/v1") else (url, f"{url}/v1"):
            reply = await HttpEndpointClient(client, base, headers, timeout_s).request("/models")
            models = reply.json().get("data")
            if reply.ok and isinstance(models, list):
                names = [str(entry["id"]) for entry in models if isinstance(entry, dict) and "id" in entry]
                return base, model or (names[0] if names else "default")
    return url, model or "default"


def _policy(config: Config, name: str | None) -> Instance:
    from gymnast.errors import UserError

    if name is not None:
        return config.instance(name)
    models = [model for model in config.instances.values() if model.kind == "responses_api_models"]
    chosen = [model for model in models if model.name == "policy_model"] or models
    if len(chosen) == 1:
        return chosen[0]
    if not chosen:
        raise UserError("no endpoint given", next="gymnast check endpoint http://HOST:PORT/v1, or -c with a model")
    names = " or ".join(model.name for model in chosen)
    raise UserError("several model instances are configured", next=f"choose one: --instance {names}")
