"""The page: one self-contained file of a template, styles, a script and data.

The security policy allows only the page's script and styles, by their hashes: nothing in a rollout can run or style
anything. Strings cannot become markup (trusted types). Images are shown only if they are data of this file.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from string import Template
from typing import IO, TYPE_CHECKING, Final

from gymnast import __version__
from gymnast.report.figure_cards import render_figures
from gymnast.report.headline_section import render_headlines
from gymnast.report.markup import Markup, join_markup, tag
from gymnast.report.payload import pack
from gymnast.report.task_rankings import render_rankings
from gymnast.report.transcript_note import render_transcript_note

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
