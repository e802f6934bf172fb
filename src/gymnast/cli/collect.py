"""`gymnast collect`: rollouts of a dataset, with everything they need living in this process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.rollouts.run import CollectRequest
    from gymnast.types.events import Event, RunFinished


def command(
    overrides: shared.Overrides = None,
    *,
    source: Annotated[str, typer.Option("--input", "-i", help="JSONL file of tasks.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="JSONL file for the scored rollouts.")],
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    model: shared.ModelName = None,
    model_url: shared.ModelUrl = None,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="Agent for rows that name none; needless if there is only one.")
    ] = None,
    num_repeats: Annotated[int, typer.Option("--num-repeats", "-n", min=1, help="Rollouts of each task.")] = 1,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", min=1, help="Rollouts in flight at most (num_samples_in_parallel). [default: 256]"
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Read at most this many input lines.")] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Laid over each row's create params.")
    ] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", help="Laid over each row's create params.")] = None,
    max_output_tokens: Annotated[
        int | None, typer.Option("--max-output-tokens", help="Laid over each row's create params.")
    ] = None,
    prompt_config: Annotated[
        str | None,
        typer.Option("--prompt-config", help="YAML with `user` and `system` templates filled from each row."),
    ] = None,
    rollout_timeout_s: Annotated[float, typer.Option("--rollout-timeout", help="Seconds a rollout may take.")] = 7200.0,
    via_serve: Annotated[
        bool, typer.Option("--no-serve", help="Start nothing: use the agents of a running `gymnast serve`.")
    ] = False,
    head: shared.Head = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the files of an earlier run under the same names.")
    ] = False,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Collect rollouts: tasks in, scored rollouts and failures out.

    Nothing has to be running except the policy endpoint. Deadlines (seconds): seed 120, model call 1800, tool 300,
    verify 600, whole rollout 7200; all but the last are settings of the agent.
    """
    from gymnast.rollouts.collect import DEFAULT_CONCURRENCY, CollectOptions
    from gymnast.rollouts.plan import PlanOptions
    from gymnast.rollouts.prompt import read_template
    from gymnast.rollouts.run import CollectRequest, only_agent

    config = shared.load(
        overrides,
        config_files=config_files,
        environments=environments,
        model_type=model_type,
        model=model,
        model_url=model_url,
        search_dirs=search_dirs,
        stub_policy=via_serve or head is not None,
    ).checked()
    params: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "max_output_tokens": max_output_tokens}
    agents = [name for name, found in config.instances.items() if found.kind == "responses_api_agents"]
    request = CollectRequest(
        source=config.roots.require(source, "the input file"),
        output=output,
        plan=PlanOptions(
            agent=agent or only_agent(agents),
            repeats=num_repeats,
            limit=limit,
            params={
                **(config.values.get("responses_create_params") or {}),
                **{key: value for key, value in params.items() if value is not None},
            },
            template=read_template(config.roots.require(prompt_config, "the prompt template"))
            if prompt_config
            else None,
        ),
        options=CollectOptions(concurrency or DEFAULT_CONCURRENCY, rollout_timeout_s),
        existing="overwrite" if overwrite else "refuse",
        request_debug=bool(config.values.get("global_aiohttp_client_request_debug")),
    )
    return run(request, config, remote=via_serve or head is not None, head=head, as_json=as_json)


def run(request: CollectRequest, config: Any, *, remote: bool, head: str | None, as_json: bool) -> int:
    """Collect, show progress, print the result. Returns the exit code."""
    import asyncio

    from gymnast.cli.status import find_head
    from gymnast.cli.terminal import Progress
    from gymnast.config import read_environ
    from gymnast.rollouts.run import collect_here, collect_remote
    from gymnast.runtime.listener import loop_factory

    progress = Progress()
    listen = _json_listener(progress) if as_json else progress
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if remote:
            url, token = find_head(head, config)
            finished = runner.run(collect_remote(request, url, token, listen, shared.say))
        else:
            finished = runner.run(collect_here(request, config, read_environ(), listen, shared.say))
    if not as_json:
        show(finished, progress)
    return 1 if finished.scored < finished.requested else 0


def show(finished: RunFinished, progress: Any) -> None:
    """The summary table, where the files are, and what to do about failures."""
    from gymnast.cli.terminal import print_table, summary_table
    from gymnast.store.paths import RunPaths
    from gymnast.types.failure import kind_named

    print_table(summary_table(progress.tally))
    paths = RunPaths(Path(finished.output))
    print(f"rollouts  {paths.output}")
    print(f"inputs    {paths.materialized_inputs}")
    if finished.failed:
        print(f"failures  {paths.failures}")
        print(f"{finished.scored} of {finished.requested} rollouts were scored", file=sys.stderr)
        for kind, count in sorted(finished.failed.items(), key=lambda pair: -pair[1]):
            known = kind_named(kind)
            print(f"  {count} × {kind} (layer {known.layer.value}): {known.hint}", file=sys.stderr)


def _json_listener(progress: Any) -> Any:
    """Events as JSON lines on standard output; nothing else goes there."""
    import msgspec

    encoder = msgspec.json.Encoder()

    def listen(event: Event) -> None:
        progress(event)
        sys.stdout.write(encoder.encode(event).decode() + "\n")
        sys.stdout.flush()

    return listen
