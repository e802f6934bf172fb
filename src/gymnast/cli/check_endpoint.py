"""`gymnast check endpoint`: what a policy endpoint can do, before a run finds out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.checks.endpoint_report import EndpointReport
    from gymnast.config import Config, Instance


def endpoint(
    url: Annotated[
        str | None, typer.Argument(help="Base URL of the endpoint, with its /v1. Without one: the configured policy.")
    ] = None,
    overrides: shared.Overrides = None,
    *,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    model: shared.ModelName = None,
    instance: Annotated[
        str | None, typer.Option("--instance", help="The model instance to ask, if there are several.")
    ] = None,
    need: Annotated[
        list[str] | None,
        typer.Option("--need", help="What your run needs beside an answer, e.g. tools_auto, token_ids. Repeatable."),
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds one request may take.")] = 60.0,
    probe_context: Annotated[
        bool, typer.Option("--probe-context", help="Find the context length by asking for too much.")
    ] = False,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Ask an endpoint a handful of tiny requests. Exit 1 if something a run needs fails.

    models, answer, usage, tools_auto, tools_forced, streaming, logprobs, token_ids, context, latency: each passes,
    fails or is unsupported, with what that means. Answers and tools go through the model server of a run.
    """
    import asyncio
    import tempfile
    from functools import partial
    from pathlib import Path

    from gymnast.checks.endpoint import check_endpoint
    from gymnast.checks.endpoint_report import NAMES, EndpointOptions
    from gymnast.config import read_environ
    from gymnast.errors import suggest
    from gymnast.runtime.listener import loop_factory
    from gymnast.runtime.probe import endpoint_urls

    for name in need or ():
        if name not in NAMES:
            raise typer.BadParameter(f"there is no check '{name}': {suggest(name, NAMES)}", param_hint="--need")
    if url is not None and not url.startswith(("http://", "https://")):  # an override, not an address
        overrides, url = [url, *(overrides or [])], None
    with asyncio.Runner(loop_factory=loop_factory()) as runner, tempfile.TemporaryDirectory() as logs:
        load = partial(
            shared.load,
            overrides,
            config_files=config_files,
            environments=environments,
            model_type=model_type,
            search_dirs=search_dirs,
        )
        config = load(model=model or (url and "default"), model_url=url).checked()
        if url is not None:
            key = next((key for _, key in endpoint_urls([_policy(config, instance)]).values()), "")
            url, model = runner.run(_address(url, model, key, timeout_s))
            config = load(model=model, model_url=url).checked()
        options = EndpointOptions(frozenset(need or ()), timeout_s, probe_context)
        asked = _policy(config, instance)
        report = runner.run(check_endpoint(config, read_environ(), asked, options, Path(logs)))
    if as_json:
        import orjson

        print(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(report)
    return 0 if report.ok else 1


async def _address(url: str, model: str | None, key: str, timeout_s: float) -> tuple[str, str]:
    """The URL with its /v1, and the name of a model there, where they can be found out."""
    from gymnast.checks.endpoint_line import HttpLine
    from gymnast.wire.http_client import HttpClient

    url = url.rstrip("/")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with HttpClient() as client:
        for base in (url,) if url.endswith("/v1") else (url, f"{url}/v1"):
            found = await HttpLine(client, base, headers, timeout_s).ask("/models")
            listed = found.json().get("data")
            if found.ok and isinstance(listed, list):
                names = [str(entry["id"]) for entry in listed if isinstance(entry, dict) and "id" in entry]
                return base, model or (names[0] if names else "default")
    return url, model or "default"


def _policy(config: Config, name: str | None) -> Instance:
    from gymnast.errors import UserError

    if name is not None:
        return config.instance(name)
    models = [found for found in config.instances.values() if found.kind == "responses_api_models"]
    chosen = [found for found in models if found.name == "policy_model"] or models
    if len(chosen) == 1:
        return chosen[0]
    if not chosen:
        raise UserError("no endpoint is named", next="gymnast check endpoint http://HOST:PORT/v1, or -c with a model")
    raise UserError("there are several model instances", next=f"--instance {' or '.join(one.name for one in chosen)}")


def _print(report: EndpointReport) -> None:
    print(f"{report.address}  model {report.model or '(unnamed)'}")
    for check in report.checks:
        took = f" ({check.seconds:.2f} s)" if check.seconds is not None else ""
        need = " [needed]" if check.needed and check.status != "pass" else ""
        print(f"{check.status:<12}{check.name}: {check.said}{took}{need}")
        for heading, text in (("means", check.means), ("next", check.next)):
            if text and (check.status != "pass" or heading == "means"):
                print(f"{'':<12}{heading}: {text}")
    verdict = "has what a run needs" if report.ok else "lacks something a run needs"
    print(f"{verdict}; {report.tokens_used} tokens used")
