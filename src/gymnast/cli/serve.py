"""`gymnast serve`: the configured instances on ports, for trainers and other clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.runtime.server_group import ServerGroup


def command(
    overrides: shared.Overrides = None,
    *,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    model: shared.ModelName = None,
    model_url: shared.ModelUrl = None,
    model_key_name: shared.ModelKeyName = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", help="Address to listen on; clients need a token unless it is loopback. [default: 127.0.0.1]"
        ),
    ] = None,
    head_port: Annotated[
        str | None,
        typer.Option("--head-port", help="Port of the head server, or 'auto' for a free one. [default: 11000]"),
    ] = None,
    log_dir: Annotated[
        Path | None, typer.Option("--log-dir", help="Folder for the log files, one per instance.")
    ] = None,
    endpoint_timeout_s: Annotated[
        float,
        typer.Option("--endpoint-timeout", min=0, help="Seconds to wait for policy endpoints; 0 skips the check."),
    ] = 600.0,
    search_dirs: shared.SearchDirs = None,
    unsafe_no_sandbox: shared.UnsafeNoSandbox = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Serve the configured instances over HTTP.

    Runs the instances and the head server until interrupted.
    """
    from gymnast.runtime.server_group import ServeOptions

    config = shared.load(
        overrides,
        config_files=config_files,
        environments=environments,
        model_type=model_type,
        model=model,
        model_url=model_url,
        model_key_name=model_key_name,
        search_dirs=search_dirs,
        unsafe_no_sandbox=unsafe_no_sandbox,
    ).require_valid()
    options = ServeOptions(
        host=host,
        head_port=_port(head_port),
        log_dir=log_dir,
        endpoint_timeout_s=endpoint_timeout_s,
    )
    return run(config, options, as_json=as_json)


def run(config: Config, options: Any, *, as_json: bool) -> int:
    """Serve until SIGINT or SIGTERM."""
    import asyncio

    from gymnast.runtime.listener import loop_factory

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, options, as_json=as_json))
    return 0


async def _serve(config: Config, options: Any, *, as_json: bool) -> None:
    import asyncio
    import signal

    from gymnast.config import read_environ
    from gymnast.runtime.garbage import rare_garbage_collection
    from gymnast.runtime.server_group import ServerGroup

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    starting = asyncio.current_task()
    assert starting is not None

    def interrupt() -> None:
        if serving_started:
            stop.set()
        else:
            starting.cancel()

    serving_started = False
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        async with ServerGroup(config, read_environ(), options, shared.say) as serving:
            serving_started = True
            _announce(serving, as_json=as_json)
            with rare_garbage_collection():
                await stop.wait()
            shared.say("stopping")
    except asyncio.CancelledError:
        shared.say("interrupted while starting")


def _announce(serving: ServerGroup, *, as_json: bool) -> None:
    rows = serving.state.instances()
    if as_json:
        import orjson

        print(orjson.dumps({"head": serving.head_url, "token": serving.token, "instances": rows}).decode(), flush=True)
        return
    for row in rows:
        where = f"pid {row['pid']}" if row["pid"] else "elsewhere"
        print(f"  {row['process_name']:<45} {row['server_type']:<22} {row['url'] or '':<28} {where}")
    print(f"{len(rows)} instances are ready; head server at {serving.head_url}; logs in {serving.log_dir}", flush=True)
    if serving.token:
        shared.say(f"clients need the token: GYMNAST_TOKEN={serving.token}")


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if text == "auto":
        return 0
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"expected a number or 'auto', got '{text}'", param_hint="--head-port") from error
