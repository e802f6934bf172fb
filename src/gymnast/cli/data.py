"""`gymnast data`: datasets put together, rendered, checked and fetched. Nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.data.fetch import FetchRequest
    from gymnast.data.hub import Hub
    from gymnast.data.prepare import PrepareRequest
    from gymnast.data.validate import Checked, Validation

app = typer.Typer(help="Datasets: put together, render, check, download.", no_args_is_help=True, rich_markup_mode=None)

Mode = Annotated[
    str,
    typer.Option("--mode", help="train_preparation (train, validation, benchmark) or example_validation (example)."),
]
OutputDir = Annotated[Path, typer.Option("--output-dir", help="Folder for TYPE.jsonl and TYPE_metrics.json.")]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch configured datasets that are missing (should_download).")
]
DataSource = Annotated[
    str | None, typer.Option("--data-source", help="huggingface or gitlab, for a dataset that names both.")
]
OverwriteConflicts = Annotated[
    bool,
    typer.Option("--overwrite-metrics-conflicts", help="Replace metrics files that say something else."),
]
Input = Annotated[str, typer.Option("--input", "-i", help="JSONL file of rows.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", help="JSONL file of rows. Repeatable. Without it: all configured datasets."),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="JSONL file for the rendered rows.")]
Template = Annotated[
    str, typer.Option("--prompt-config", help="YAML with `user` and `system` templates filled from each row.")
]
MaybeTemplate = Annotated[
    str | None, typer.Option("--prompt-config", help="Check the rows as this prompt template renders them.")
]
License = Annotated[str | None, typer.Option("--license", help="The license of the files; must be a known one.")]
Allow = Annotated[
    list[str] | None, typer.Option("--allow", help="A kind of problem not to report, e.g. duplicate_row. Repeatable.")
]
RepoId = Annotated[str, typer.Option("--repo-id", help="Dataset on the Hugging Face Hub: ORG/NAME.")]
Artifact = Annotated[str | None, typer.Option("--artifact", help="A file of it, taken as it is.")]
Split = Annotated[str | None, typer.Option("--split", help="A split of it, as JSONL; without one, every split.")]
Revision = Annotated[str | None, typer.Option("--revision", help="Branch, tag or commit.")]
FetchOutput = Annotated[Path | None, typer.Option("--output", "-o", help="File for the artifact or the split.")]
FetchOutputDir = Annotated[
    Path | None, typer.Option("--output-dir", help="Instead: folder for the artifact, or for SPLIT.jsonl.")
]


@app.command("prepare")
def prepare(
    overrides: shared.Overrides = None,
    *,
    output_dir: OutputDir,
    mode: Mode = "train_preparation",
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    download: Download = False,
    data_source: DataSource = None,
    overwrite_conflicts: OverwriteConflicts = False,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Put the configured datasets together by type, with metrics of each and of all.

    Every row is checked; a bad one is an error that names its file and line, and then nothing is written.
    """
    from gymnast.data.configured import SOURCES
    from gymnast.data.prepare import MODES, PrepareRequest

    config = _load(overrides, config_files, environments, search_dirs)
    request = PrepareRequest(
        mode=_one_of("--mode", mode, MODES),
        output_dir=output_dir,
        download=download,
        data_source=_one_of("--data-source", data_source, SOURCES) if data_source else None,
        overwrite_conflicts=overwrite_conflicts,
    )
    return run_prepare(config, request, as_json=as_json)


@app.command("render")
def render(
    source: Input,
    prompt_config: Template,
    output: Output,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Write a dataset with a prompt template applied: each row's input is made from its fields."""
    return run_render(_load(None, None, None, search_dirs), source, prompt_config, output, as_json=as_json)


@app.command("validate")
def validate(
    overrides: shared.Overrides = None,
    *,
    inputs: Inputs = None,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    prompt_config: MaybeTemplate = None,
    license_name: License = None,
    allow: Allow = None,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Check rows: schema, tools, agents, empty prompts and answers, duplicates, license. Prints all problems at once.

    Kinds of problems: json, schema, tool, agent, empty, duplicate_row (also across files), duplicate_id, license.
    """
    from gymnast.data.validate import KINDS, files_to_check
    from gymnast.data.validate import validate as validate_files

    config = _load(overrides, config_files, environments, search_dirs)
    allowed = [_one_of("--allow", kind, KINDS) for kind in allow or ()]
    files = files_to_check(config, inputs or (), prompt_config=prompt_config, license_name=license_name)
    found = validate_files(files, config.agents or None, allow=allowed)
    _show_validation(found, files, as_json=as_json)
    return 2 if found.findings else 0


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
    """Fetch a dataset from the Hugging Face Hub: one file as it is, or its splits as JSONL.

    The token is hf_token of env.yaml (or +hf_token=…), else HF_TOKEN or what `hf auth login` saved.
    """
    from gymnast.data.fetch import FetchRequest

    config = _load(overrides, None, None, None)
    request = FetchRequest(repo_id, artifact, split, output, output_dir, revision)
    return run_download(config, request, as_json=as_json)


def run_prepare(config: Config, request: PrepareRequest, *, as_json: bool) -> int:
    """Prepare and print what was written."""
    from gymnast.data import prepare as preparation

    done = preparation.prepare(config, request, hub_of(config), shared.say)
    for path in done.overwritten:
        shared.say(f"warning: {path} said something else and was replaced")
    if as_json:
        _print_json({"mode": request.mode, "types": done.types})
        return 0
    for kind, found in done.types.items():
        names = ", ".join(one["name"] for one in found["datasets"])
        print(f"{kind}  {found['jsonl_fpath']}  ({found['examples']} rows from {names})")
        print(f"{'':{len(kind)}}  {found['metrics_fpath']}")
    return 0


def run_render(config: Config, source: str, prompt_config: str, output: Path, *, as_json: bool) -> int:
    """Render and print what was written."""
    from gymnast.data import render as rendering

    path = config.roots.require(source, "the input file")
    rows = rendering.render(path, config.roots.require(prompt_config, "the prompt template"), output)
    if as_json:
        _print_json({"output_jsonl_fpath": str(output), "rows": rows})
    else:
        print(f"rendered  {output}  ({rows} rows)")
    return 0


def run_download(config: Config, request: FetchRequest, *, as_json: bool) -> int:
    """Download and print what was written."""
    from gymnast.data.fetch import fetch

    fetched = fetch(request, hub_of(config))
    if as_json:
        files = [{"path": str(one.path), "size_bytes": one.size_bytes, "rows": one.rows} for one in fetched]
        _print_json({"repo_id": request.repo_id, "files": files})
        return 0
    for one in fetched:
        rows = f"{one.rows} rows, " if one.rows is not None else ""
        print(f"fetched  {one.path}  ({rows}{one.size_bytes} bytes)")
    return 0


def hub_of(config: Config) -> Hub:
    """The Hub, with the configured token."""
    from gymnast.data.hub import Hub
    from gymnast.errors import UserError

    token = config.values.get("hf_token") or None
    if token is not None and not isinstance(token, str):
        raise UserError("'hf_token' must be a text")
    return Hub(token=token)


def _load(overrides: Any, config_files: Any, environments: Any, search_dirs: Any) -> Config:
    return shared.load(
        overrides, config_files=config_files, environments=environments, search_dirs=search_dirs, stub_policy=True
    ).checked()


def _one_of(option: str, value: str, known: Any) -> str:
    from gymnast.errors import UserError, suggest

    if value not in known:
        raise UserError(f"{option} cannot be '{value}'", next=suggest(value, known))
    return value


def _show_validation(found: Validation, files: list[Checked], *, as_json: bool) -> None:
    from gymnast.data.validate import KINDS

    if as_json:
        problems = found.findings.as_json()
        _print_json({"valid": not problems, "rows": found.rows, "files": len(files), "problems": problems})
        return
    for kind, count in found.findings.counts.items():
        shared.say(f"{kind}: {KINDS[kind]} ({count})")
        shown = found.findings.first[kind]
        for finding in shown:
            shared.say(f"  {finding}")
        if count > len(shown):
            shared.say(f"  … and {count - len(shown)} more")
    if found.findings:
        shared.say(f"{found.findings.total} problems in {found.rows} rows")
    else:
        names = ", ".join(one.shown for one in files)
        print(f"valid: {found.rows} rows ({names})")


def _print_json(value: Any) -> None:
    import orjson

    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
