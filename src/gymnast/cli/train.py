"""`gymnast train`: training samples from a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared
from gymnast.cli.click_classes import old_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.train.export import ExportSummary

app = typer.Typer(
    help="Export training samples from a run.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)

Output = Annotated[
    Path, typer.Option("--output", "-o", help="File to write: .jsonl, or .parquet (needs gymnast[parquet]).")
]
Partial = Annotated[bool, typer.Option("--allow-partial", help="Export even if rollouts are still owed.")]
MaskTruncated = Annotated[bool, typer.Option("--mask-truncated", help="Mask rollouts that were truncated.")]
ShareBy = Annotated[
    str,
    typer.Option(
        "--split-reward", help="How segments share the rollout's reward: tokens, equal or last.", metavar="RULE"
    ),
]


@app.callback()
def train() -> None:
    """Export training samples from a run."""


@app.command("export", cls=old_names(partial="allow_partial", share="split_reward"))
def export(
    run: shared.Run,
    output: Output,
    *,
    partial: Partial = False,
    mask_truncated: MaskTruncated = False,
    share: ShareBy = "tokens",
    as_json: shared.JsonOutput = False,
) -> int:
    """Write one training sample per rollout.

    A sample has segments of token ids, loss masks, logprobs, weights and the reward. Rollouts that failed or must not
    be trained on are included, with the reason. Exit 1, and no file, if rollouts of the run are still owed.
    """
    from gymnast.cli.main import print_error
    from gymnast.errors import UserError
    from gymnast.train.errors import FewerRolloutsError
    from gymnast.train.export import export_samples
    from gymnast.train.ledger import Share
    from gymnast.train.sample_reader import SampleOptions

    if share not in list(Share):
        raise UserError(f"invalid value '{share}' for --split-reward", next=f"choose one of: {', '.join(Share)}")
    options = SampleOptions(Share(share), mask_truncated)
    try:
        summary = export_samples(run, output, options, partial=partial)
    except FewerRolloutsError as error:
        print_error(str(error))
        return 1
    if as_json:
        import orjson

        print(orjson.dumps(summary.as_json()).decode())
    for line in lines(summary):
        print(line, file=sys.stderr)
    return 0


def lines(summary: ExportSummary) -> Iterator[str]:
    """Format the summary as text."""
    from gymnast.train.samples import MaskReason

    counts = f"{summary.samples} of {summary.requested} rollouts, {summary.segments} segments"
    yield f"samples   {summary.output}  ({counts})"
    yield f"trainable {summary.trained_samples} samples, {summary.trained_tokens} of {summary.tokens} tokens"
    for name, kinds in (("masked", summary.masked), ("failed", summary.failed)):
        if kinds:
            yield f"{name}    {', '.join(f'{kind} {count}' for kind, count in kinds.most_common())}"
    if summary.samples and not summary.trained_samples:
        lacks_tokens = MaskReason.NO_TOKENS.value in summary.masked
        hint = ": collect with return_token_id_information: true on the policy's model server" if lacks_tokens else ""
        yield f"warning   no sample has trainable tokens{hint}"
    if summary.missing:
        yield f"missing   {summary.missing} rollouts are still owed"
