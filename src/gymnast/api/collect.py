"""`gymnast.collect`: a run as an async iterator, with the files, resume and accounting of the command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnast.config import compose, read_environ
from gymnast.config.known_keys import RUN_KEYS
from gymnast.rollouts.exit_status import parse_allowance
from gymnast.rollouts.notebook_view import NotebookView
from gymnast.rollouts.observer import RunObserver
from gymnast.rollouts.options import run_options
from gymnast.rollouts.record import Record
from gymnast.rollouts.record_stream import RecordStream
from gymnast.rollouts.retry import DEFAULT_ATTEMPTS, DEFAULT_GIVE_UP_AFTER_S, DEFAULT_ROLLOUT_TIMEOUT_S
from gymnast.rollouts.run import collect_run
from gymnast.runtime.find_head import find_head
from gymnast.runtime.unsandboxed import without_sandbox
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.tracking.telemetry import report_run
from gymnast.types.events import Event, RunStarted
from gymnast.types.telemetry import DEFAULT_TRACE_SAMPLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence

    from gymnast.config import Config
    from gymnast.rollouts.options import OnChange
    from gymnast.types.truncation import TruncatedPolicy


async def collect(
    source: str | Path | None,
    output: str | Path,
    *,
    environments: Sequence[str] = (),
    config_paths: Sequence[str] = (),
    overrides: Sequence[str] = (),
    model_type: str | None = None,
    model: str | None = None,
    model_url: str | None = None,
    model_key_name: str | None = None,
    search_dirs: Sequence[Path] = (),
    config: Config | None = None,
    unsafe_no_sandbox: bool = False,
    head: str | None = None,
    split: str | None = None,
    agent: str | None = None,
    num_repeats: int | Mapping[str, int] | None = None,
    limit: int | None = None,
    params: Mapping[str, Any] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    max_output_tokens: int | None = None,
    prompt_config: str | Path | None = None,
    prompt: str | None = None,
    map: Mapping[str, str] | Sequence[str] | None = None,  # noqa: A002 - as the option is called
    add_seed: bool = False,
    skip_bad_rows: bool = False,
    concurrency: int | None = None,
    rollout_timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S,
    max_attempts: int = DEFAULT_ATTEMPTS,
    max_failed: int | str = 0,
    give_up_after_s: float = DEFAULT_GIVE_UP_AFTER_S,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    truncated: TruncatedPolicy = "score",
    workers: int = 0,
    resume: bool = False,
    on_change: OnChange = "refuse",
    retry_failed: bool = False,
    overwrite: bool = False,
    aggregate: bool = True,
    preflight: bool = True,
    track: str | Sequence[str] = (),
    trace: str | None = None,
    trace_sample: float = DEFAULT_TRACE_SAMPLE,
    progress: bool = True,
    on_event: Callable[[Event], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> AsyncGenerator[Record]:
    """Collect rollouts of the tasks in `source` into `output`, and yield each record once it is stored.

    With `resume`, the records that an earlier run scored come first, so that every rollout is seen once. Ends with
    `MissingRolloutsError` if more than `max_failed` rollouts (a count, or a share such as "1%") have no reward. Closing
    the iterator early ends the run (`async with contextlib.aclosing(gymnast.collect(…)) as records` does so
    immediately); what was stored stays on disk, and `resume` finishes the rest.

    Once all attempts together have used `max_cost` (which needs `prices`) or `max_tokens`, nothing more is started. The
    missing rollouts stay owed; `resume` with a larger budget continues.

    `track` reports to trackers (`["wandb:my-project"]`), and `trace` sends a share `trace_sample` of the rollouts as
    traces to the OTLP/HTTP collector with this URL.

    In a notebook a progress bar shows the run, unless `progress` is False.

    `truncated` rollouts, whose responses were cut off by a length or step limit, keep their score (`score`), are marked
    for trainers not to train on as well (`mask`), or fail (`fail`).

    `map` copies fields of each row to the names that are read (`{"expected_answer": "answer"}`), and `prompt` makes the
    model's input from them ("Solve: {question}").

    Unless `preflight` is False, the first rollouts run one at a time until one shows that others can succeed, so that a
    run which cannot succeed ends before much is spent.

    `num_repeats` is 1 unless set here or in the configuration.

    Servers are named as on the command line (`environments=["mcqa"], model_url=…`), or passed as a loaded `config`.
    """
    environ = read_environ()
    if config is None:
        config = compose(
            environ,
            overrides=overrides,
            config_paths=config_paths,
            environments=environments,
            model_type=model_type,
            model=model,
            model_url=model_url,
            model_key_name=model_key_name,
            search_dirs=search_dirs,
            stub_policy=head is not None,
            command_keys=RUN_KEYS,
            agent=agent if head is None else None,
        )
    config.require_valid()
    if unsafe_no_sandbox:
        config, _ = without_sandbox(config)
    options = run_options(
        config,
        output=output,
        source=source,
        split=split,
        agent=agent,
        num_repeats=num_repeats,
        limit=limit,
        params=params,
        temperature=temperature,
        top_p=top_p,
        max_output_tokens=max_output_tokens,
        prompt_config=prompt_config,
        prompt=prompt,
        map=map,
        add_seed=add_seed,
        skip_bad_rows=skip_bad_rows,
        concurrency=concurrency,
        rollout_timeout_s=rollout_timeout_s,
        max_attempts=max_attempts,
        give_up_after_s=give_up_after_s,
        max_cost=max_cost,
        max_tokens=max_tokens,
        truncated=truncated,
        workers=workers,
        resume=resume,
        on_change=on_change,
        retry_failed=retry_failed,
        overwrite=overwrite,
        aggregate=aggregate,
        preflight=preflight,
        serve=find_head(head, config, environ) if head is not None else None,
    )
    stream, earlier = RecordStream(), _EarlierRecords(on_event)
    view = NotebookView.open() if progress else None
    watch = stream.watch if view is None else view.watch_too(stream.watch)
    say = on_note or (lambda _: None) if view is None else view.say_too(on_note)
    async with report_run([track] if isinstance(track, str) else track, trace, trace_sample, say) as telemetry:
        observer = RunObserver(earlier.listen, say, telemetry.watch_too(watch), stream.put, telemetry.tracer)
        observer.warn(config.warnings)
        observer.note(config.notes)
        run = asyncio.create_task(collect_run(options, config, environ, observer))
        try:
            if resume:
                futures: list[asyncio.Future[Any]] = [run, earlier.ready]
                await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
                for record in earlier.records():
                    yield record
            async for record in stream.records(run, parse_allowance(str(max_failed))):
                yield record
        finally:
            await stream.end(run)
            if not run.cancelled() and run.exception() is None:
                telemetry.finished = run.result()


class _EarlierRecords:
    """The records that were scored before this invocation started."""

    def __init__(self, on_event: Callable[[Event], None] | None) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_event = on_event or (lambda _: None)
        self._output: Path | None = None
        self._size_bytes = 0

    def listen(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._output = Path(event.output)
            self._size_bytes = self._output.stat().st_size
            self.ready.set_result(None)
        self._on_event(event)

    def records(self) -> Iterator[Record]:
        remaining = self._size_bytes
        for _, line in numbered_lines(self._output) if self._output is not None and remaining else ():
            key = key_of_line(line)
            if key is not None:
                yield Record(key, line)
            remaining -= len(line) + 1
            if remaining <= 0:
                return
