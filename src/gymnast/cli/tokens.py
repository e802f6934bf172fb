"""`gymnast tokens`: what can be proved of a run's tokens, and the form that other tools read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from gymnast.tokens.run_audit import RunAudit

app = typer.Typer(
    help="The tokens of a run: audit, export.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)

Run = Annotated[Path, typer.Argument(help="The run: its output file.")]
Each = Annotated[bool, typer.Option("--each", help="One line of JSON for every rollout instead of their sum.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="JSONL file to be written.")]


@app.command("audit")
def audit(run: Run, *, each: Each = False, as_json: shared.JsonOutput = False) -> int:
    """Check the token ledger of every rollout: exact or not, and why.

    Exit 1 unless all rollouts have a ledger, every ledger holds together, and no prompt departs from what was sampled.
    Forks are no fault: a harness that edits its history starts a new segment, and the reason is told.
    """
    from gymnast.tokens.run_audit import audit_run, rollout_lines

    if each:
        exact = True
        for line in rollout_lines(run):
            exact = exact and b'"exact":true' in line
            print(line.decode())
        return 0 if exact else 1
    found = audit_run(run)
    if as_json:
        import orjson

        print(orjson.dumps(found.as_json()).decode())
    else:
        for said in lines(found, str(run)):
            print(said)
    return 0 if found.is_exact else 1


@app.command("export")
def export(run: Run, output: Output) -> int:
    """Write the records with whole prompts on their items (prompt_token_ids and so on), as NeMo Gym's readers expect.

    The size then grows with the square of the turns; the ledger in the run's own file is linear.
    """
    from gymnast.tokens.run_audit import export_run

    count = export_run(run, output)
    print(f"exported  {output}  ({count} records)", file=sys.stderr)
    return 0


def lines(found: RunAudit, name: str) -> Iterator[str]:
    """An audit for people."""
    yield f"{name}: {found.rollouts} rollouts, {found.calls} model calls, {found.tokens} tokens"
    yield f"prompts sent as ids   {found.ids_sent} of {found.calls} calls"
    yield f"drift                 {found.drift} tokens"
    yield f"segments              {found.segments}{_listed(found.forks, ' of them forks: ')}"
    masked = f"{sum(found.masked.values())} masked{_listed(found.masked, ': ')}"
    yield f"sampled               {found.sampled}, of which {found.trained} trainable, {masked}"
    yield f"logprobs              {_listed(found.logprob_modes, '') or 'none'}"
    yield f"weights               {_listed(found.weight_versions, '') or 'none'}"
    yield f"sources               {_listed(found.sources, '') or 'none'}"
    if found.without_ledger:
        yield f"{found.without_ledger} rollouts have no token ledger (set return_token_id_information: true)"
    if found.drifting:
        yield f"drifting: {', '.join(found.drifting)}"
    yield from found.broken
    yield "Exact: tokens trained on are tokens sampled." if found.is_exact else "Not exact."


def _listed(counts: Counter[str], prefix: str) -> str:
    said = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return prefix + said if said else ""
