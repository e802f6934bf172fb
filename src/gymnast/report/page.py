"""The page: one file from a template, its styles, its script and its data. It loads nothing and lets nothing run.

The security policy names the script and the styles by their hashes: nothing else is a script or a style to a browser,
whatever a rollout contains. And strings cannot become markup (trusted types).
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib import resources
from string import Template
from typing import TYPE_CHECKING, Final

from gymnast import __version__
from gymnast.report.figures import figures
from gymnast.report.headline_section import headlines
from gymnast.report.markup import Markup, joined, tag
from gymnast.report.payload import packed
from gymnast.report.rankings import rankings
from gymnast.report.scales import count, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnast.report.payload import Transcripts
    from gymnast.report.run_view import RunView
    from gymnast.types.json import JsonObject

_STYLES: Final = ("page.css", "charts.css", "viewer.css")
_SCRIPTS: Final = ("dom.js", "data.js", "tasks.js", "transcript.js", "viewer.js", "plots.js", "main.js")


def page(runs: Sequence[RunView], columns: Sequence[JsonObject], transcripts: Sequence[Transcripts]) -> str:
    """The whole report."""
    style = assets(_STYLES)
    script = f'"use strict";\n{{\n{assets(_SCRIPTS)}\n}}'
    lists = (_lists(run, one["prompts"], len(runs)) for run, one in zip(runs, columns, strict=True))
    values = {
        "title": joined([", ".join(run.name for run in runs)]),
        "headline": headlines(runs),
        "figures": figures(runs),
        "rankings": joined(lists),
        "carried": joined([_carried(runs, transcripts)]),
        "data": joined(_data(*pair) for pair in enumerate(zip(columns, transcripts, strict=True))),
        "version": joined([__version__]),
        "policy": policy(style, script),
        "style": style,
        "script": script,
    }
    return Template(asset("page.html")).substitute(values)


def policy(style: str, script: str) -> str:
    """What a browser may do with the page: run this script, use these styles, nothing else."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _lists(run: RunView, prompts: Sequence[str], runs: int) -> Markup:
    """The tasks to look at first, under the run's name where there are several."""
    name = tag("h3", tag("span", class_=f"key run-{run.number % 6}"), run.name, class_="of-run") if runs > 1 else None
    return joined([name, rankings(run, prompts)])


def _data(number: int, pair: tuple[JsonObject, Transcripts]) -> Markup:
    """Data blocks. Base64 and task numbers have no sign that could end an element."""
    columns, transcripts = pair
    whole = packed({**columns, "transcripts": transcripts.rollouts})
    return joined(
        [
            tag("script", Markup(whole), type="text/plain", id=f"columns-{number}", data_columns=True),
            tag("script", Markup(json.dumps(transcripts.blocks)), type="application/json", id=f"transcripts-{number}"),
        ],
        "\n",
    )


def _carried(runs: Sequence[RunView], transcripts: Sequence[Transcripts]) -> str:
    """How many transcripts the file has."""
    here, total = sum(map(len, transcripts)), sum(len(run.table) + len(run.loaded.failures.last_kind) for run in runs)
    if here >= total:
        return f"All transcripts are in this file: {some(total, 'rollout')}."
    return (
        f"The transcripts of {count(here)} of {count(total)} rollouts are in this file: extremes of every reward, the "
        "most uncertain and the slowest tasks, failures of every kind. For the others the page shows the command that "
        "prints them."
    )


def assets(names: Iterable[str]) -> str:
    """Files of the page, one after the other."""
    return "\n".join(asset(name) for name in names)


def asset(name: str) -> str:
    """A file of the page."""
    return resources.files("gymnast.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
