"""`gymnast data`: convert, prepare, render, validate and download datasets. Nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymnast.cli import options as shared
from gymnast.cli.click_classes import old_names

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.data.fetch import FetchRequest
    from gymnast.data.hub import Hub
    from gymnast.data.prepare import PrepareRequest
    from gymnast.data.validate import InputFile, ValidationResult

app = typer.Typer(
    help="Convert, prepare, render, validate or download datasets.", no_args_is_help=True, rich_markup_mode=None
)

Mode = Annotated[
    str,
    typer.Option("--mode", help="train_preparation (train, validation, benchmark) or example_validation (example)."),
]
OutputDir = Annotated[Path, typer.Option("--output-dir", help="Folder for TYPE.jsonl and TYPE_metrics.json.")]
Download = Annotated[
    bool, typer.Option("--download", help="Download configured datasets that are missing (should_download).")
]
DataSource = Annotated[
    str | None, typer.Option("--data-source", help="huggingface or gitlab, for datasets that have both.")
]
OverwriteConflicts = Annotated[
    bool,
    typer.Option("--overwrite-metrics-conflicts", help="Replace metrics files that differ."),
]
Input = Annotated[str, typer.Option("--input", "-i", help="JSONL file of rows.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", help="JSONL file of rows. Repeatable. [default: all configured datasets]"),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="JSONL file for the rendered rows.")]
Template = Annotated[
    str, typer.Option("--prompt-config", help="YAML with `user` and `system` templates filled from each row.")
]
License = Annotated[str | None, typer.Option("--license", help="License of the files; must be a known one.")]
Ignore = Annotated[
    list[str] | None, typer.Option("--ignore", help="Kind of problem to ignore, e.g. duplicate_row. Repeatable.")
]
RepoId = Annotated[str, typer.Option("--repo-id", help="Dataset on the Hugging Face Hub: ORG/NAME.")]
Artifact = Annotated[str | None, typer.Option("--artifact", help="Download this file unchanged.")]
Split = Annotated[str | None, typer.Option("--split", help="Download this split as JSONL. [default: every split]")]
Revision = Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit.")]
FetchOutput = Annotated[Path | None, typer.Option("--output", "-o", help="File for the artifact or the split.")]
FetchOutputDir = Annotated[
    Path | None, typer.Option("--output-dir", help="Folder for the artifact or SPLIT.jsonl, instead of --output.")
]


LocalCopy = Annotated[
    Path | None, typer.Option("--from", help="For a benchmark: local copy of its dataset, or a mirror of several.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="For a benchmark: only the first tasks.")]


@app.command("prepare")
def prepare(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BENCHMARK | OVERRIDES]...", help="Benchmarks by name, or Hydra-style overrides."),
    ] = None,
    *,
    output_dir: OutputDir,
    local_copy: LocalCopy = None,
    revision: Revision = None,
    limit: Limit = None,
    mode: Mode = "train_preparation",
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    download: Download = False,
    data_source: DataSource = None,
    overwrite_conflicts: OverwriteConflicts = False,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Combine the configured datasets by type, with metrics.

    Writes metrics of each dataset and of all. Every row is checked: an invalid one is an error with its file and line,
    and then nothing is written. With the name of a benchmark (`gymnast eval --list`): gets its data and writes
    NAME/tasks.jsonl and NAME/data.json, which says where they came from.
    """
    from gymnast.data.datasets import SOURCES
    from gymnast.data.prepare import MODES, PrepareRequest

    names = [word for word in overrides or () if "=" not in word and not word.startswith("~")]
    if names:
        return _prepare_benchmarks(
            names, output_dir, search_dirs, as_json=as_json, local_copy=local_copy, revision=revision, limit=limit
        )
    if local_copy is not None or revision is not None or limit is not None:
        raise typer.BadParameter("--from, --revision and --limit need the name of a benchmark")

    config = _load(overrides, config_files, environments, search_dirs)
    request = PrepareRequest(
        mode=_choice("--mode", mode, MODES),
        output_dir=output_dir,
        download=download,
        data_source=_choice("--data-source", data_source, SOURCES) if data_source else None,
        overwrite_conflicts=overwrite_conflicts,
    )
    return run_prepare(config, request, as_json=as_json)


def _prepare_benchmarks(
    names: list[str], output_dir: Path, search_dirs: list[Path] | None, *, as_json: bool, **options: Any
) -> int:
    from gymnast.benchmarks.catalog import find_benchmark
    from gymnast.benchmarks.evaluation import Plan, prepare_tasks, unique_names
    from gymnast.config import read_environ
    from gymnast.config.roots import Roots
    from gymnast.data.hub import Hub

    config = _load(None, None, None, search_dirs)
    roots = Roots((*(search_dirs or ()), *read_environ().extra_roots), Path.cwd())
    plans = unique_names(
        [Plan(benchmark.name, benchmark) for benchmark in (find_benchmark(name, roots) for name in names)]
    )
    hub = Hub(token=config.values.get("hf_token") or None)
    prepared = []
    for plan in plans:
        tasks, data = prepare_tasks(plan, output_dir / plan.name, hub, overwrite=True, say=shared.say, **options)
        assert data is not None
        prepared.append({"benchmark": plan.name, "tasks": str(tasks), "rows": data.rows, "data": data.describe()})
        if not as_json:
            print(f"{plan.name:<20} {data.rows} tasks in {tasks}  ({data.describe()})")
    if as_json:
        shared.print_json(prepared)
    return 0


@app.command("render")
def render(
    source: Input,
    prompt_config: Template,
    output: Output,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Apply a prompt template to the rows of a dataset."""
    return run_render(_load(None, None, None, search_dirs), source, prompt_config, output, as_json=as_json)


@app.command("convert")
def convert(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="JSONL, JSON, CSV, Parquet, or a folder.", show_default=False)
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="JSONL file to write.", show_default=False)],
    *,
    format_name: Annotated[
        str | None, typer.Option("--from", help="Format of IN: lm-eval, verifiers or nemo-rl. [default: by its rows]")
    ] = None,
    map: shared.Map = None,  # noqa: A002 - as the option is called
    prompt: shared.Prompt = None,
    prompt_config: shared.PromptConfig = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Convert at most this many rows.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Convert your data into rows that can be collected.

    Reads JSONL, JSON, CSV, TSV, Parquet and Arrow, also gzipped, and folders of one split. --map and --prompt make rows
    of any columns; samples of lm-eval, datasets of verifiers and chat datasets of NeMo RL are known.
    """
    from gymnast.data.convert import ConvertRequest
    from gymnast.data.convert import convert as run_convert
    from gymnast.data.formats import FORMATS
    from gymnast.rollouts.options import find_template
    from gymnast.rollouts.row_map import parse_map

    config = _load(None, None, None, search_dirs)
    request = ConvertRequest(
        source=config.roots.require(source, "the input file"),
        target=target,
        row_map=parse_map(map),
        template=find_template(config, prompt_config, prompt),
        format=_choice("--from", format_name, FORMATS) if format_name else None,
        limit=limit,
        overwrite=overwrite,
    )
    result = run_convert(request)
    if as_json:
        shared.print_json({"rows": result.rows, "format": result.format, "output": str(target)})
    else:
        known = f" from the format of {result.format}" if result.format else ""
        print(f"{result.rows} rows{known}: {target}")
    return 0


@app.command("validate", cls=old_names(allow="ignore"))
def validate(
    overrides: shared.Overrides = None,
    *,
    inputs: Inputs = None,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    prompt_config: shared.PromptConfig = None,
    license_name: License = None,
    ignore: Ignore = None,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Check the rows of datasets and print all problems.

    Kinds of problems: json, schema, tool, agent, empty, duplicate_row (also across files), duplicate_id, license.
    """
    from gymnast.data.validate import KINDS, select_files
    from gymnast.data.validate import validate as validate_files

    config = _load(overrides, config_files, environments, search_dirs)
    ignored = [_choice("--ignore", kind, KINDS) for kind in ignore or ()]
    files = select_files(config, inputs or (), prompt_config=prompt_config, license_name=license_name)
    result = validate_files(files, config.agents or None, allow=ignored)
    _show_validation(result, files, as_json=as_json)
    return 2 if result.problems else 0


@app.command("download")
def download(
    overrides: shared.Overrides = None,
    *,
    repo_id: RepoId,
    artifact: Artifact = None,
    split: Split = None,
    revision: Revision = None,
    output: FetchOutput = None,
    output_dir: FetchOutputDir = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Download a dataset from the Hugging Face Hub.

    Takes one file unchanged, or splits as JSONL. The token is hf_token of env.yaml (or +hf_token=…), or HF_TOKEN, or
    the one that `hf auth login` saved.
    """
    from gymnast.data.fetch import FetchRequest

    config = _load(overrides, None, None, None)
    request = FetchRequest(repo_id, artifact, split, output, output_dir, revision)
    return run_download(config, request, as_json=as_json)


def run_prepare(config: Config, request: PrepareRequest, *, as_json: bool) -> int:
    """Prepare and print what was written."""
    from gymnast.data import prepare as preparation

    result = preparation.prepare(config, request, make_hub(config), shared.say)
    for path in result.overwritten:
        shared.say(f"warning: {path} differed and was replaced")
    if as_json:
        shared.print_json({"mode": request.mode, "types": result.types})
        return 0
    for kind, written in result.types.items():
        names = ", ".join(dataset["name"] for dataset in written["datasets"])
        print(f"{kind}  {written['jsonl_fpath']}  ({written['examples']} rows from {names})")
        print(f"{'':{len(kind)}}  {written['metrics_fpath']}")
    return 0


def run_render(config: Config, source: str, prompt_config: str, output: Path, *, as_json: bool) -> int:
    """Render and print what was written."""
    from gymnast.data.convert import render as render_rows

    path = config.roots.require(source, "the input file")
    rows = render_rows(path, config.roots.require(prompt_config, "the prompt template"), output)
    if as_json:
        shared.print_json({"output_jsonl_fpath": str(output), "rows": rows})
    else:
        print(f"rendered  {output}  ({rows} rows)")
    return 0


def run_download(config: Config, request: FetchRequest, *, as_json: bool) -> int:
    """Download and print what was written."""
    from gymnast.data.fetch import fetch

    files = fetch(request, make_hub(config))
    if as_json:
        entries = [{"path": str(file.path), "size_bytes": file.size_bytes, "rows": file.rows} for file in files]
        shared.print_json({"repo_id": request.repo_id, "files": entries})
        return 0
    for file in files:
        rows = f"{file.rows} rows, " if file.rows is not None else ""
        print(f"fetched  {file.path}  ({rows}{file.size_bytes} bytes)")
    return 0


def make_hub(config: Config) -> Hub:
    """A client of the Hugging Face Hub with the configured token."""
    from gymnast.data.hub import Hub
    from gymnast.errors import UserError

    token = config.values.get("hf_token") or None
    if token is not None and not isinstance(token, str):
        raise UserError("'hf_token' must be a string")
    return Hub(token=token)


def _load(overrides: Any, config_files: Any, environments: Any, search_dirs: Any) -> Config:
    return shared.load(
        overrides, config_files=config_files, environments=environments, search_dirs=search_dirs, stub_policy=True
    ).require_valid()


def _choice(option: str, value: str, known: Any) -> str:
    from gymnast.errors import UserError, suggest

    if value not in known:
        raise UserError(f"invalid value '{value}' for {option}", next=suggest(value, known))
    return value


def _show_validation(result: ValidationResult, files: list[InputFile], *, as_json: bool) -> None:
    from gymnast.data.validate import KINDS

    if as_json:
        problems = result.problems.as_json()
        shared.print_json({"valid": not problems, "rows": result.rows, "files": len(files), "problems": problems})
        return
    for kind, count in result.problems.counts.items():
        shared.say(f"{kind}: {KINDS[kind]} ({count})")
        shown = result.problems.first[kind]
        for problem in shown:
            shared.say(f"  {problem}")
        if count > len(shown):
            shared.say(f"  … and {count - len(shown)} more")
    if result.problems:
        shared.say(f"{result.problems.total} problems in {result.rows} rows")
    else:
        names = ", ".join(file.name for file in files)
        print(f"valid: {result.rows} rows ({names})")
