"""`gymnast tokens`: audit the token ledgers of a run, and export them for other tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared
from gymnast.cli.click_classes import old_names

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from gymnast.tokens.run_audit import RunAudit

app = typer.Typer(
    help="Audit or export the tokens of a run.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)

PerRollout = Annotated[
    bool, typer.Option("--per-rollout", help="Print one line of JSON per rollout instead of totals.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="JSONL file to write.")]


@app.command("audit", cls=old_names(each="per_rollout"))
def audit(run: shared.Run, *, per_rollout: PerRollout = False, as_json: shared.JsonOutput = False) -> int:
    """Check that the token ledger of every rollout is exact.

    Exit 1 unless all rollouts have a ledger, every ledger is consistent, and no prompt differs from what was sampled.
    Forks are allowed: a harness that edits its history starts a new segment, and the audit gives the reason.
    """
    from gymnast.tokens.run_audit import audit_run, iter_audit_lines

    if per_rollout:
        is_exact = True
        for line in iter_audit_lines(run):
            is_exact = is_exact and b'"exact":true' in line
            print(line.decode())
        return 0 if is_exact else 1
    audit_result = audit_run(run)
    if as_json:
        import orjson

        print(orjson.dumps(audit_result.as_json()).decode())
    else:
        print("\n".join(lines(audit_result, str(run))))
    return 0 if audit_result.is_exact else 1


@app.command("export")
def export(run: shared.Run, output: Output) -> int:
    """Write the records with full prompt_token_ids on their items.

    NeMo Gym's readers expect this form. Its size grows with the square of the turns; the ledger in the run's own file
    grows linearly.
    """
    from gymnast.tokens.run_audit import export_run

    count = export_run(run, output)
    print(f"exported  {output}  ({count} records)", file=sys.stderr)
    return 0


def lines(audit_result: RunAudit, name: str) -> Iterator[str]:
    yield f"{name}: {audit_result.rollouts} rollouts, {audit_result.calls} model calls, {audit_result.tokens} tokens"
    yield f"prompts sent as ids   {audit_result.ids_sent} of {audit_result.calls} calls"
    yield f"drift                 {audit_result.drift} tokens"
    yield f"segments              {audit_result.segments}{_list_counts(audit_result.forks, ' of them forks: ')}"
    masked = f"{sum(audit_result.masked.values())} masked{_list_counts(audit_result.masked, ': ')}"
    yield f"sampled               {audit_result.sampled}, of which {audit_result.trained} trainable, {masked}"
    yield f"logprobs              {_list_counts(audit_result.logprob_modes, '') or 'none'}"
    yield f"weights               {_list_counts(audit_result.weight_versions, '') or 'none'}"
    yield f"sources               {_list_counts(audit_result.sources, '') or 'none'}"
    if audit_result.without_ledger:
        yield f"{audit_result.without_ledger} rollouts have no token ledger (set return_token_id_information: true)"
    if audit_result.drifting:
        yield f"drifting: {', '.join(audit_result.drifting)}"
    yield from audit_result.broken
    yield "Exact: tokens trained on are tokens sampled." if audit_result.is_exact else "Not exact."


def _list_counts(counts: Counter[str], prefix: str) -> str:
    text = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return prefix + text if text else ""
