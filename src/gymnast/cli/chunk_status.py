"""`gymnast status RUN` for a run in chunks: the account, who works on what, and what nobody can know."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Final

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.cluster.account import RunAccount
    from gymnast.cluster.executor import JobView
    from gymnast.store.chunk_layout import ChunkLayout
    from gymnast.store.paths import RunPaths

_MOST_CHUNKS: Final = 20
_EVERY_S: Final = 2.0


def show_chunked(paths: RunPaths, *, as_json: bool, watch: bool = False) -> int:
    """Print how a run in chunks stands. 0 if workers are at it, or will be, or nothing is owed."""
    import msgspec

    from gymnast.store.chunk_layout import ChunkLayout

    layout = ChunkLayout.of(paths)
    account = account_now(layout)
    while watch and account.unsettled:
        print(one_line(account), flush=True)
        time.sleep(_EVERY_S)
        account = account_now(layout)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(account)).decode())
    else:
        _print(paths, account)
    return 1 if _state(account) == "interrupted" else 0


def account_now(layout: ChunkLayout) -> RunAccount:
    """The account, with what schedulers say of the jobs."""
    from gymnast.cluster.account import Observer, run_account
    from gymnast.cluster.order import read_order
    from gymnast.store.file_clock import file_clock

    lease_s, jobs = read_order(layout).work.lease_s, tuple(_jobs(layout))
    return run_account(layout, Observer(lease_s=lease_s, now=file_clock(layout.folder), jobs=jobs))


def _state(account: RunAccount) -> str:
    """The run in a word. Jobs that wait in a queue or are starting hold no chunk yet."""
    if not account.unsettled:
        return "complete"
    if account.states["held"]:
        return "running"
    return "interrupted" if all(job.state.is_over for job in account.jobs) else "waiting for jobs"


def one_line(account: RunAccount) -> str:
    """The state of a run in one line."""
    failed = sum(account.failed.values())
    text = f"{account.scored + failed}/{account.requested} rollouts"
    text += f"  {failed} failed" if failed else ""
    text += f"  {account.in_flight} in flight  {account.owed} owed"
    text += f"  {account.unknown} unknown" if account.unknown else ""
    return text + f"  {sum(worker.chunks_held > 0 for worker in account.workers)} workers at it"


def _jobs(layout: ChunkLayout) -> list[JobView]:
    from gymnast.cluster.executors import executor_for, located
    from gymnast.cluster.submissions import read_submissions
    from gymnast.errors import UserError

    found: list[JobView] = []
    for submission in read_submissions(layout):
        try:
            known = located(submission)
            found += executor_for(known).states(known) if known is not None else []
        except UserError as error:
            shared.say(f"note: {submission.executor} does not say how its jobs stand: {error.what}")
    return found


def merge_jobs(layout: ChunkLayout) -> list[JobView]:
    """The jobs that were queued to merge, the newest last."""
    from gymnast.cluster.executors import located
    from gymnast.cluster.slurm.executor import SlurmExecutor
    from gymnast.cluster.submissions import read_submissions

    slurm = SlurmExecutor()
    begun = [one for one in map(located, read_submissions(layout)) if one is not None]
    return [view for view in map(slurm.finish_state, begun) if view is not None]


def _merge_job(paths: RunPaths) -> JobView | None:
    """The one that merges or should have: of several, one that is not over, else the newest."""
    from gymnast.errors import UserError
    from gymnast.store.chunk_layout import ChunkLayout

    try:
        found = merge_jobs(ChunkLayout.of(paths))
    except UserError as error:
        shared.say(f"note: nobody says how the job stands that merges: {error.what}")
        return None
    return next((view for view in reversed(found) if not view.state.is_over), found[-1] if found else None)


def _merge_words(view: JobView, paths: RunPaths) -> str:
    text = f"job {view.job} {view.state.value}"
    text += f", {view.reason}" if view.reason else ""
    if view.exit_code:
        text += f", exit code {view.exit_code}: gymnast logs {shlex.quote(str(paths.output))} --job finish"
    return text


def _print(paths: RunPaths, account: RunAccount) -> None:
    from gymnast.cli.spending import spending

    state = _state(account)
    print(f"{paths.output}: {state}, in {len(account.chunks)} chunks")
    print(
        f"  {account.requested} requested = {account.scored} scored + {sum(account.failed.values())} failed"
        f" + {account.in_flight} in flight + {account.unknown} unknown + {account.owed} owed"
    )
    for kind, number in sorted(account.failed.items(), key=lambda pair: -pair[1]):
        print(f"  {number} × {kind}")
    print("  chunks: " + ", ".join(f"{number} {name}" for name, number in account.states.items() if number))
    if account.spent.calls:
        print(f"  {spending(account.spent)}")
    _print_chunks(account)
    _print_workers(account)
    merging = _merge_job(paths)
    if merging is not None:
        print(f"  merge: {_merge_words(merging, paths)}")
    if not account.unsettled and not paths.done.exists():
        is_coming = merging is not None and not merging.state.is_over
        run = shlex.quote(str(paths.output))
        shared.say("next: wait for the job that merges" if is_coming else f"next: gymnast merge {run}")
    elif state == "interrupted":
        shared.say("next: gymnast submit --resume adds the workers that what is owed still needs")


def _print_chunks(account: RunAccount) -> None:
    """Chunks that are begun and not done, the most silent first."""
    from rich.table import Table

    from gymnast.cli.terminal import print_table
    from gymnast.cluster.account import ChunkState

    begun = [one for one in account.chunks if one.state not in {ChunkState.FREE, ChunkState.DONE}]
    if not begun:
        return
    begun.sort(key=lambda one: -(one.heard_s or 0.0))
    more = f", {_MOST_CHUNKS} of {len(begun)}" if len(begun) > _MOST_CHUNKS else ""
    table = Table(title=f"chunks under way{more}", title_justify="left", box=None, padding=(0, 2))
    for heading in ("chunk", "state", "settled", "in flight", "unknown", "owed", "worker", "job", "heard"):
        table.add_column(heading)
    for one in begun[:_MOST_CHUNKS]:
        settled = f"{one.scored + sum(one.failed.values())}/{one.requested}"
        heard = f"{one.heard_s:.0f} s ago" if one.heard_s is not None else one.why or ""
        numbers = (str(one.in_flight or ""), str(one.unknown or ""), str(one.owed or ""))
        table.add_row(one.chunk, one.state.value, settled, *numbers, one.worker or "", one.job or "", heard)
    print_table(table)


def _print_workers(account: RunAccount) -> None:
    """Workers that are at it or whose job ended badly, and how the jobs stand."""
    from collections import Counter

    from rich.table import Table

    from gymnast.cli.terminal import print_table

    shown = [one for one in account.workers if one.chunks_held or one.state not in {"", "completed"}]
    if shown:
        more = f", {_MOST_CHUNKS} of {len(shown)}" if len(shown) > _MOST_CHUNKS else ""
        table = Table(title=f"workers{more}", title_justify="left", box=None, padding=(0, 2))
        for heading in ("worker", "job", "state", "scored", "failed", "in flight", "unknown", "owed", "chunks"):
            table.add_column(heading)
        for one in shown[:_MOST_CHUNKS]:
            numbers = (one.scored, sum(one.failed.values()), one.in_flight, one.unknown, one.owed)
            chunks = f"{one.chunks_done} done, {one.chunks_held} held"
            table.add_row(one.worker, one.job or "", one.state, *(str(number or "") for number in numbers), chunks)
        print_table(table)
    if account.jobs:
        states = Counter(job.state.value for job in account.jobs)
        print("  jobs: " + ", ".join(f"{number} {name}" for name, number in states.most_common()))
        _print_bad_ends(account.jobs)


def _print_bad_ends(jobs: list[JobView]) -> None:
    """What each kind of bad end means, and which jobs it was, with the scheduler's own words."""
    from gymnast.cluster.job_failures import failure_of

    ended = [(job, kind) for job in jobs if (kind := failure_of(job)) is not None]
    for kind in dict.fromkeys(kind for _, kind in ended):
        print(f"    {kind.name}: {kind.hint}")
    for job, kind in ended[:_MOST_CHUNKS]:
        said = f", {job.reason.splitlines()[-1]}" if job.reason else ""
        print(f"    {job.job} {job.state.value}: {kind.name}{said}")
    if len(ended) > _MOST_CHUNKS:
        print(f"    … and {len(ended) - _MOST_CHUNKS} more")
