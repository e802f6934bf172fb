"""The page: one self-contained file of a template, styles, a script and data.

The security policy allows only the page's script and styles, by their hashes: nothing in a rollout can run or style
anything. Strings cannot become markup (trusted types).
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from itertools import count
from string import Template
from typing import TYPE_CHECKING, Final

from gymnast import __version__
from gymnast.report.figure_cards import render_figures
from gymnast.report.headline_section import render_headlines
from gymnast.report.markup import Markup, join_markup, tag
from gymnast.report.payload import pack
from gymnast.report.scales import format_count, pluralise
from gymnast.report.task_rankings import render_rankings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.report.payload import Transcripts
    from gymnast.report.run_view import RunView
    from gymnast.types.json import JsonObject

_STYLES: Final = ("page.css", "charts.css", "viewer.css")
_SCRIPTS: Final = ("dom.js", "data.js", "tasks.js", "transcript.js", "viewer.js", "plots.js", "main.js")


def render_page(runs: Sequence[RunView], columns: Sequence[JsonObject], transcripts: Sequence[Transcripts]) -> str:
    """The whole report."""
    style = read_assets(_STYLES)
    script = f'"use strict";\n{{\n{read_assets(_SCRIPTS)}\n}}'
    lists = (_lists(run, own["prompts"], len(runs)) for run, own in zip(runs, columns, strict=True))
    values = {
        "title": join_markup([", ".join(run.name for run in runs)]),
        "headline": render_headlines(runs),
        "figures": render_figures(runs),
        "rankings": join_markup(lists),
        "carried": join_markup([_transcript_note(runs, transcripts)]),
        "data": join_markup(map(_data_blocks, count(), columns, transcripts)),
        "version": join_markup([__version__]),
        "policy": security_policy(style, script),
        "style": style,
        "script": script,
    }
    return Template(read_asset("page.html")).substitute(values)


def security_policy(style: str, script: str) -> str:
    """Allow the page's script and styles, and nothing else."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _lists(run: RunView, prompts: Sequence[str], runs: int) -> Markup:
    """The tasks to look at first, with the run's name if there are several runs."""
    name = tag("h3", tag("span", class_=f"key run-{run.number % 6}"), run.name, class_="of-run") if runs > 1 else None
    return join_markup([name, render_rankings(run, prompts)])


def _data_blocks(number: int, columns: JsonObject, transcripts: Transcripts) -> Markup:
    """The data of a run. Base64 and task numbers contain no character that could end an element."""
    data = Markup(pack({**columns, "transcripts": transcripts.rollouts}))
    blocks = Markup(json.dumps(transcripts.blocks))
    return join_markup(
        [
            tag("script", data, type="text/plain", id=f"columns-{number}", data_columns=True),
            tag("script", blocks, type="application/json", id=f"transcripts-{number}"),
        ],
        "\n",
    )


def _transcript_note(runs: Sequence[RunView], transcripts: Sequence[Transcripts]) -> str:
    """How many transcripts the file includes."""
    included = sum(map(len, transcripts))
    total = sum(len(run.table) + len(run.loaded.failures.last_kind) for run in runs)
    if included >= total:
        return f"All transcripts are in this file: {pluralise(total, 'rollout')}."
    return (
        f"The transcripts of {format_count(included)} of {format_count(total)} rollouts are in this file: extremes of "
        "every reward, the most uncertain and the slowest tasks, failures of every kind. For the others, the page "
        "shows the command that prints them."
    )


def read_assets(names: Iterable[str]) -> str:
    """Read and join several assets."""
    return "\n".join(read_asset(name) for name in names)


def read_asset(name: str) -> str:
    """Read an asset of the page."""
    return resources.files("gymnast.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
