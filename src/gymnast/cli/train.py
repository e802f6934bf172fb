"""`gymnast train`: the samples of a run for trainers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.train.export import ExportSummary

app = typer.Typer(
    help="What trainers take: samples of a run.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)

Run = Annotated[Path, typer.Argument(help="The run: its output file.")]
Output = Annotated[
    Path, typer.Option("--output", "-o", help="File to be written: .jsonl, or .parquet (extra parquet).")
]
Partial = Annotated[bool, typer.Option("--partial", help="Export a run of which rollouts are still owed.")]
MaskTruncated = Annotated[bool, typer.Option("--mask-truncated", help="Mask rollouts that were cut off.")]
ShareBy = Annotated[
    str, typer.Option("--share", help="How segments share a rollout's reward: tokens, equal or last.", metavar="RULE")
]


@app.callback()
def train() -> None:
    """What trainers take: samples of a run."""


@app.command("export")
def export(
    run: Run,
    output: Output,
    *,
    partial: Partial = False,
    mask_truncated: MaskTruncated = False,
    share: ShareBy = "tokens",
    as_json: shared.JsonOutput = False,
) -> int:
    """Write one sample for each rollout: segments of ids, loss masks, logprobs, weights, the reward and reasons.

    Rollouts that failed or must not be trained on are in the file, with the reason. Exit 1, and no file, when rollouts
    of the run are still owed.
    """
    from gymnast.cli.main import say_error
    from gymnast.errors import UserError
    from gymnast.train.errors import FewerRolloutsError
    from gymnast.train.export import export_samples
    from gymnast.train.ledger import Share
    from gymnast.train.reading import SampleOptions

    if share not in list(Share):
        raise UserError(f"'{share}' is no way to share a reward", next=f"there is: {', '.join(Share)}")
    options = SampleOptions(Share(share), mask_truncated)
    try:
        found = export_samples(run, output, options, partial=partial)
    except FewerRolloutsError as error:
        say_error(str(error))
        return 1
    if as_json:
        import orjson

        print(orjson.dumps(found.as_json()).decode())
    for said in lines(found):
        print(said, file=sys.stderr)
    return 0


def lines(found: ExportSummary) -> Iterator[str]:
    """A summary for people."""
    from gymnast.train.samples import MaskReason

    yield f"samples   {found.output}  ({found.samples} of {found.requested} rollouts, {found.segments} segments)"
    yield f"trainable {found.trained_samples} samples, {found.trained_tokens} of {found.tokens} tokens"
    for name, counts in (("masked", found.masked), ("failed", found.failed)):
        if counts:
            yield f"{name}    {', '.join(f'{kind} {count}' for kind, count in counts.most_common())}"
    if found.samples and not found.trained_samples:
        untold = MaskReason.NO_TOKENS.value in found.masked
        knob = ": collect with return_token_id_information: true on the policy's model server" if untold else ""
        yield f"warning   no sample has a token to be trained on{knob}"
    if found.missing:
        yield f"missing   {found.missing} rollouts are still owed"
