"""Writes the generated reference pages. `make docs` runs it; a test checks that the pages are not stale.

python docs/generate.py [--check]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gymnast.compat.ng import COMMANDS as NG_COMMANDS
from gymnast.types.failure import KINDS, Layer

HERE = Path(__file__).parent

LAYERS = {
    Layer.INFRA: "processes, hosts, network, files",
    Layer.MODEL_SERVING: "the policy endpoint: startup, readiness, throughput",
    Layer.CONFIG: "names, keys and addresses in the configuration",
    Layer.DATA_SCHEMA: "rows that do not fit what reads them",
    Layer.VERIFIER: "environments: sessions, tools, scoring, judges",
    Layer.CACHE_RESUME: "files of earlier runs",
    Layer.THROUGHPUT: "deadlines and concurrency",
    Layer.AGENT: "the agent's own code",
    Layer.SANDBOX: "where model-written code runs",
}


def failures_page() -> str:
    """docs/failures.md from the failure table."""
    lines = [
        "# Failures",
        "",
        "Every failed attempt is a line of `x_failures.jsonl` with `failure.kind` and `failure.layer` from this table.",
        "A failure is never a reward. Generated from `gymnast/types/failure.py`; edit the table there.",
        "",
        "| layer | what belongs to it |",
        "|---|---|",
        *(f"| `{layer.value}` | {text} |" for layer, text in LAYERS.items()),
        "",
        "A used-up turn budget and a context that overflows are outcomes of the policy: they are scored, not failed.",
        "",
    ]
    for kind in KINDS.values():
        again = "trying again may help" if kind.retryable else "trying again cannot help"
        lines += [f"### {kind.name}", "", f"Layer `{kind.layer.value}`; {again}. Next: {kind.hint}.", ""]
    return "\n".join(lines)


COMMANDS = (
    (),
    ("collect",),
    ("serve",),
    ("report",),
    ("status",),
    ("demo",),
    ("config",),
    ("config", "show"),
    ("config", "explain"),
    ("config", "validate"),
    ("data",),
    ("data", "prepare"),
    ("data", "render"),
    ("data", "validate"),
    ("data", "download"),
)


def commands_page() -> str:
    """docs/commands.md from the commands' own help."""
    lines = ["# Commands", "", "What `--help` says. Generated; edit the commands.", ""]
    for command in COMMANDS:
        shell = [sys.executable, "-m", "gymnast.cli.main", *command, "--help"]
        env = {**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100"}
        text = subprocess.run(shell, env=env, check=True, capture_output=True, text=True).stdout
        text = text.replace("python -m gymnast.cli.main", "gymnast")
        lines += [f"## {' '.join(('gymnast', *command))}", "", "```", text.rstrip(), "```", ""]
    lines += [
        "## ng_* commands",
        "",
        "| command | |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in NG_COMMANDS.items()),
        "",
        "They take Hydra-style arguments only, exit 1 on a wrong configuration and 2 on a wrong command field.",
        "`nemo_gym_*` are the same commands under their other names.",
        "",
    ]
    return "\n".join(lines)


PAGES = {"failures.md": failures_page, "commands.md": commands_page}


def main() -> None:
    """Write the pages, or with --check say which are stale."""
    stale = [name for name, page in PAGES.items() if not _same(HERE / name, page())]
    if "--check" in sys.argv:
        sys.exit(f"stale, run `make docs`: {', '.join(stale)}" if stale else 0)
    for name in stale:
        (HERE / name).write_text(PAGES[name]())


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    main()
