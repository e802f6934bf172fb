"""The page: one self-contained file of a template, styles, a script and data.

The security policy allows only the page's script and styles, by their hashes: nothing in a rollout can run or style
anything. Strings cannot become markup (trusted types). Images are shown only if they are data of this file.

The page says how many transcripts it includes, which it leaves out, and how to get those.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from importlib import resources
from string import Template
from typing import IO, TYPE_CHECKING, Final

from gymnast import __version__
from gymnast.report.figure_cards import render_figures
from gymnast.report.headline_section import render_headlines
from gymnast.report.markup import Markup, join_markup, tag
from gymnast.report.payload import pack
from gymnast.report.scales import format_count, pluralise
from gymnast.report.task_rankings import render_rankings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gymnast.report.run_view import RunView
    from gymnast.report.transcripts import Transcripts
    from gymnast.types.json import JsonObject

_STYLES: Final = ("page.css", "charts.css", "viewer.css")
_SCRIPTS: Final = (
    "dom.js",
    "data.js",
    "search.js",
    "tasks.js",
    "tokens.js",
    "transcript.js",
    "viewer.js",
    "plots.js",
    "main.js",
)


def write_page(
    out: IO[bytes], runs: Sequence[RunView], columns: Sequence[JsonObject], transcripts: Sequence[Transcripts]
) -> None:
    """Write the whole report: the page, the data chunk by chunk, and the script."""
    style = read_assets(_STYLES)
    script = f'"use strict";\n{{\n{read_assets(_SCRIPTS)}\n}}'
    lists = (_lists(run, own["prompts"], len(runs)) for run, own in zip(runs, columns, strict=True))
    values = {
        "title": join_markup([", ".join(run.name for run in runs)]),
        "headline": render_headlines(runs),
        "figures": render_figures(runs),
        "rankings": join_markup(lists),
        "carried": render_transcript_note(runs, transcripts),
        "version": join_markup([__version__]),
        "policy": security_policy(style, script),
        "style": style,
        "script": script,
    }
    before, after = (Template(part).substitute(values) for part in read_asset("page.html").split("$data"))
    out.write(before.encode())
    for number, (own, own_transcripts) in enumerate(zip(columns, transcripts, strict=True)):
        for block in _data_blocks(number, own, own_transcripts):
            out.write(block)
    out.write(after.encode())


def security_policy(style: str, script: str) -> str:
    """Allow the page's script and styles, and nothing else."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'; img-src data:"
    )


def _lists(run: RunView, prompts: Sequence[str], runs: int) -> Markup:
    """The tasks to look at first, with the run's name if there are several runs."""
    name = tag("h3", tag("span", class_=f"key run-{run.number % 6}"), run.name, class_="of-run") if runs > 1 else None
    return join_markup([name, render_rankings(run, prompts)])


def _data_blocks(number: int, columns: JsonObject, transcripts: Transcripts) -> Iterator[bytes]:
    """The data of a run. Base64 contains no character that could end an element."""
    data = Markup(pack({**columns, "transcripts": transcripts.places}))
    yield tag("script", data, type="text/plain", id=f"columns-{number}", data_columns=True).encode()
    for index, chunk in enumerate(transcripts.read_chunks()):
        yield b'\n<script type="text/plain" id="chunk-%d-%d">%s</script>' % (number, index, chunk)


def read_assets(names: Iterable[str]) -> str:
    """Read and join several assets."""
    return "\n".join(read_asset(name) for name in names)


def read_asset(name: str) -> str:
    """Read an asset of the page."""
    return resources.files("gymnast.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def render_transcript_note(runs: Sequence[RunView], transcripts: Sequence[Transcripts]) -> Markup:
    """How many transcripts the file includes, and the command that includes all."""
    included, total = sum(map(len, transcripts)), sum(run.total for run in runs)
    if included == total:
        return tag("p", f"All transcripts are in this file: {pluralise(total, 'rollout')}.", class_="small")
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
    parts = [pluralise(left_out - failed, "rollout") + " with a result", pluralise(failed, "failed rollout")]
    without = f"; {pluralise(tasks, 'task')} of {format_count(sum(len(run.tasks) for run in runs))} have none here"
    return " and ".join(parts if failed else parts[:1]) + (without if tasks else "")


def _estimate(transcripts: Sequence[Transcripts], included: int, total: int) -> str:
    if not included:
        return ""
    size = sum(own.size_bytes for own in transcripts) * total / included
    return f"about {max(1, round(size / 1e6)):,} MB"
