"""What the page says about its transcripts: how many it includes, which it leaves out, and how to get those."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from gymnast.report.markup import Markup, join_markup, tag
from gymnast.report.scales import format_count
from gymnast.types.nouns import count_noun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.report.run_view import RunView
    from gymnast.report.transcripts import Transcripts


def render_transcript_note(runs: Sequence[RunView], transcripts: Sequence[Transcripts]) -> Markup:
    """How many transcripts the file includes, and the command that includes all."""
    included, total = sum(map(len, transcripts)), sum(run.total for run in runs)
    if included == total:
        return tag("p", f"All transcripts are in this file: {count_noun(total, 'rollout')}.", class_="small")
    files = " ".join(shlex.quote(str(run.paths.output)) for run in runs)
    note = (
        f"{format_count(included)} of {format_count(total)} transcripts are in this file"
        f"{_size(transcripts)}: failures of every kind first, then the worst and the best rollouts of tasks all over "
        f"the run. Left out: {_describe_left_out(runs, transcripts)}. "
    )
    estimate = _estimate(transcripts, included, total)
    parts = [
        note,
        "To include all of them" + (f" ({estimate})" if estimate else "") + ": ",
        tag("code", f"gymnast report {files} --transcripts all"),
        ". To print one: ",
        tag("code", f"gymnast report {shlex.quote(str(runs[0].paths.output))} --show TASK:ROLLOUT"),
    ]
    return tag("p", join_markup(parts), class_="notice")


def _size(transcripts: Sequence[Transcripts]) -> str:
    if not any(own.is_limited_by_size for own in transcripts):
        return ", as requested"
    return f" ({sum(own.size_bytes for own in transcripts) / 1e6:.1f} MB, the default limit)"


def _describe_left_out(runs: Sequence[RunView], transcripts: Sequence[Transcripts]) -> str:
    pairs = list(zip(runs, transcripts, strict=True))
    failed = sum(
        key & 0xFFFFFFFF not in own.places.get(key >> 32, {})
        for run, own in pairs
        for key in run.loaded.failures.last_kind
    )
    left_out = sum(run.total - len(own) for run, own in pairs)
    tasks = sum(len(run.tasks) - len(own.places) for run, own in pairs)
    parts = [count_noun(left_out - failed, "rollout") + " with a result", count_noun(failed, "failed rollout")]
    without = f"; {count_noun(tasks, 'task')} of {format_count(sum(len(run.tasks) for run in runs))} have none here"
    return " and ".join(parts if failed else parts[:1]) + (without if tasks else "")


def _estimate(transcripts: Sequence[Transcripts], included: int, total: int) -> str:
    if not included:
        return ""
    size = sum(own.size_bytes for own in transcripts) * total / included
    return f"about {max(1, round(size / 1e6)):,} MB"
