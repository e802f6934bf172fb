"""`gymnast export`: rollouts as a dataset for fine-tuning, preference training or analysis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.train.dataset.export import ExportRequest, ExportResult

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN", help=f"{shared.RUN_HELP} Several runs become one dataset.", show_default=False),
]
Format = Annotated[
    str, typer.Option("--format", "-f", help="sft, dpo, kto, rl, or all rollouts as jsonl, parquet or datasets.")
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")]
Files = Annotated[
    str | None, typer.Option("--files", help="Files of sft, dpo and kto: jsonl, parquet or datasets. [default: jsonl]")
]
For = Annotated[
    str | None, typer.Option("--for", help="Consumer of the dataset: trl, axolotl, nemo-rl or openai. [default: trl]")
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", help="Only rollouts that match, e.g. 'reward >= 0.9 and not truncated'. Repeatable."),
]
BestOf = Annotated[int | None, typer.Option("--best-of", min=1, help="Keep the N best rollouts of each task.")]
OnePerTask = Annotated[bool, typer.Option("--one-per-task", help="Keep the best rollout of each task.")]
MaxLength = Annotated[
    int | None, typer.Option("--max-length", min=1, help="Leave out conversations larger than this many bytes.")
]
Dedup = Annotated[bool, typer.Option("--dedup", help="Keep one of several equal conversations.")]
Margin = Annotated[
    float, typer.Option("--margin", min=0.0, help="Minimum difference between the rewards of a pair (dpo, kto).")
]
TiesOption = Annotated[
    str, typer.Option("--ties", help="Which of equal rewards goes first: first, shortest or longest.")
]
PairsOption = Annotated[
    str, typer.Option("--pairs", help="one: the best and the worst rollout of a task; all: every pair.")
]
Threshold = Annotated[float | None, typer.Option("--threshold", help="kto: label by this reward instead of by pairs.")]
ReasoningOption = Annotated[
    str | None, typer.Option("--reasoning", help="field (reasoning_content), inline (<think>) or drop.")
]
Splits = Annotated[
    str | None, typer.Option("--splits", help="Shares of the tasks, e.g. train=0.9,test=0.1. [default: all in train]")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the splits.")]
IncludeTruncated = Annotated[bool, typer.Option("--include-truncated", help="Export truncated rollouts as well.")]
IncludeMasked = Annotated[
    bool, typer.Option("--include-masked", help="Export rollouts that are masked for training as well.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export in the folder.")]
Push = Annotated[
    str | None, typer.Option("--push", metavar="REPO", help="Upload to this dataset of the Hugging Face Hub.")
]
Public = Annotated[bool, typer.Option("--public", help="Create the dataset as public. [default: private]")]


def command(
    runs: Runs,
    *,
    format: Format,  # noqa: A002 - the option's name
    output: Output,
    files: Files = None,
    target: For = None,
    where: WhereOption = None,
    best_of: BestOf = None,
    one_per_task: OnePerTask = False,
    label: shared.Label = None,
    not_label: shared.NotLabel = None,
    max_length: MaxLength = None,
    dedup: Dedup = False,
    margin: Margin = 0.0,
    ties: TiesOption = "first",
    pairs: PairsOption = "one",
    threshold: Threshold = None,
    reasoning: ReasoningOption = None,
    splits: Splits = None,
    seed: Seed = 0,
    include_truncated: IncludeTruncated = False,
    include_masked: IncludeMasked = False,
    overwrite: Overwrite = False,
    push: Push = None,
    public: Public = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Export rollouts as a dataset for other trainers.

    Writes a folder with the rows, a dataset card and export.json. Failed, truncated and masked rollouts are left out;
    the counts say why each rollout is not in the dataset. Secrets are masked. --push uploads the folder; run the same
    command again to continue an interrupted upload.
    """
    from gymnast.config.known_secrets import known_secrets
    from gymnast.config.secrets import Scrubber
    from gymnast.errors import UserError
    from gymnast.store.labels import LabelFilter
    from gymnast.train.dataset.export import CONTAINERS, FORMATS, ExportRequest, export_dataset
    from gymnast.train.dataset.index import Filters
    from gymnast.train.dataset.rows import TARGETS
    from gymnast.train.dataset.select import PAIRS, TIES, PairRules, parse_splits
    from gymnast.train.dataset.where import parse_where

    for option, value, known in (
        ("--format", format, FORMATS),
        ("--files", files, CONTAINERS),
        ("--for", target, TARGETS),
        ("--ties", ties, TIES),
        ("--pairs", pairs, PAIRS),
        ("--reasoning", reasoning, ("field", "inline", "drop")),
    ):
        _check_choice(option, value, known)
    filters = Filters(
        where=parse_where(*where) if where else None,
        by_label=LabelFilter(tuple(label or ()), tuple(not_label or ())),
        include_truncated=include_truncated,
        include_masked=include_masked,
        max_bytes=max_length,
        dedup=dedup,
    )
    rules: Any = {"margin": margin, "ties": ties, "pairs": pairs}
    chosen: Any = {"target": target, "reasoning": reasoning}
    request = ExportRequest(
        runs=tuple(map(shared.run_output, runs)),
        output=output,
        format=format,
        files=files,
        filters=filters,
        best_of=1 if one_per_task else best_of,
        pairs=PairRules(**rules),
        threshold=threshold,
        splits=parse_splits(splits) if splits is not None else {},
        seed=seed,
        overwrite=overwrite,
        **chosen,
    )
    _check_request(request)
    if one_per_task and best_of is not None:
        raise UserError("--best-of and --one-per-task contradict each other", next="leave out one of them")
    if public and push is None:
        raise UserError("--public is for --push", next="add --push REPO, or leave out --public")
    private_config = _private_config()
    result = export_dataset(request, Scrubber(known_secrets(private_config)))
    token = (private_config.get("env.yaml") or {}).get("hf_token")
    url = _push(result, push, token, public=public) if push is not None else None
    if as_json:
        shared.print_json({**result.as_json(), "pushed": url})
    for line in _lines(result):
        shared.say(line)
    if url is not None:
        shared.say(f"pushed    {url}")
    return 0


def _check_choice(option: str, value: str | None, known: Sequence[str]) -> None:
    from gymnast.errors import UserError

    if value is not None and value not in known:
        raise UserError(f"invalid value '{value}' for {option}", next=f"choose one of: {', '.join(known)}")


def _check_request(request: ExportRequest) -> None:
    from gymnast.errors import UserError
    from gymnast.train.dataset.select import PairRules

    if str(request.output) == "-":
        raise UserError("an export has several files, so it cannot be printed", next="name a folder: -o data")
    if request.files is not None and request.format in {"jsonl", "parquet", "datasets"}:
        raise UserError(f"--format {request.format} already sets the type of files", next="leave out --files")
    if request.needs_pairs and request.best_of is not None:
        what = f"--best-of and --one-per-task leave no pairs for --format {request.format}"
        raise UserError(what, next="use --pairs one" if request.format == "dpo" else "add --threshold")
    if request.threshold is not None and request.format != "kto":
        raise UserError("--threshold is for --format kto", next="filter with --where 'reward >= …'")
    rules, defaults = request.pairs, PairRules()
    for option, is_set, has_effect, wants in (
        ("--margin", rules.margin != defaults.margin, request.needs_pairs, "pairs (--format dpo or kto)"),
        ("--pairs", rules.pairs != defaults.pairs, request.needs_pairs, "pairs (--format dpo or kto)"),
        ("--ties", rules.ties != defaults.ties, request.needs_pairs or request.best_of, "pairs or --best-of"),
        ("--reasoning", request.reasoning is not None, request.format != "rl", "conversations (any other --format)"),
        ("--seed", request.seed != 0, request.splits, "--splits"),
    ):
        if is_set and not has_effect:
            raise UserError(f"{option} has no effect without {wants}", next=f"leave out {option}")


def _private_config() -> dict[str, Any]:
    """What ./env.yaml holds: its secrets are masked, and --push uses its token of the Hub."""
    import yaml

    path = Path("env.yaml")
    try:
        content = yaml.safe_load(path.read_text()) if path.is_file() else None
        return {"env.yaml": content} if isinstance(content, dict) else {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        shared.say("warning: env.yaml cannot be read: secrets in it are not known")
        return {}


def _push(result: ExportResult, repo_id: str, token: str | None, *, public: bool) -> str:
    from gymnast.data.hub import Hub
    from gymnast.train.dataset.files import CARD, MANIFEST

    names = [*(file.path for file in result.files), MANIFEST, CARD]
    return Hub(token=token or None).publish_folder(repo_id, result.folder, names, private=not public, say=shared.say)


def _lines(result: ExportResult) -> Iterator[str]:
    counts = result.manifest["counts"]
    unchanged = ", unchanged" if result.is_unchanged else ""
    yield f"dataset   {result.folder}  ({counts['rows']} rows from {counts['rollouts']} rollouts{unchanged})"
    for file in result.files:
        yield f"{file.split:<9} {file.path}  ({file.rows} rows, {file.size_bytes} bytes)"
    if counts["left_out"]:
        yield "left out  " + ", ".join(f"{reason} {count}" for reason, count in counts["left_out"].items())
    if counts["failed"]:
        yield "failed    " + ", ".join(f"{kind} {count}" for kind, count in counts["failed"].items())
    if counts["secrets_masked"]:
        yield f"masked    {counts['secrets_masked']} secrets"
    for note in result.notes:
        yield f"note      {note}"
