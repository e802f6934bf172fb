"""A stand-in for the `wandb` library whose calls are recorded and whose bad habits are chosen by a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_MODULE = """
import json, os, sys, time, threading, atexit, signal

def record(what, **fields):
    with open({log!r}, "a") as stream:
        stream.write(json.dumps({{"what": what, **fields}}) + "\\n")

{at_import}

class Settings:
    def __init__(self, **values):
        pass

class Artifact:
    def __init__(self, name, type):
        self.name, self.files = name, []
    def add_file(self, path):
        self.files.append(os.path.basename(path))

class Run:
    dir = "."
    summary = {{}}
    def __init__(self, id):
        self.id, self.url, self.summary = id, "http://tracker/" + id, {{}}
    def define_metric(self, name, step_metric=None):
        pass
    def log(self, figures):
        step = figures.pop("step")
        {in_log}
        record("log", step=step, figures=figures)
    def log_artifact(self, artifact):
        record("artifact", files=artifact.files)
    def finish(self, exit_code):
        {in_finish}
        record("finish", exit_code=exit_code, summary=self.summary)

def init(**options):
    options.pop("settings")
    record("init", **options)
    {in_init}
    return Run(options["id"] or "fresh")
"""


class FakeWandb:
    """Writes the module; reads what was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "calls.jsonl"

    def write(
        self, *, at_import: str = "", in_init: str = "pass", in_log: str = "pass", in_finish: str = "pass"
    ) -> None:
        """Write the library; each argument is code for one place in it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = _MODULE.format(
            log=str(self._log), at_import=at_import, in_init=in_init, in_log=in_log, in_finish=in_finish
        )
        (self.folder / "wandb.py").write_text(text)

    def calls(self, what: str) -> list[dict[str, Any]]:
        if not self._log.exists():
            return []
        calls = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [call for call in calls if call["what"] == what]
