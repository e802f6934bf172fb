"""Datasets: prepare, render, download from the Hub."""

from __future__ import annotations

from pathlib import Path

from gymnast.compat.ng_arguments import FieldError, Fields, NgArguments
from gymnast.errors import UserError


def prepare_data(arguments: NgArguments) -> int:
    """Check, measure and combine the configured datasets by type."""
    from gymnast.cli import data
    from gymnast.data.datasets import SOURCES
    from gymnast.data.prepare import MODES, PrepareRequest

    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    request = PrepareRequest(
        mode=fields.one_of("mode", MODES),
        output_dir=Path(fields.text("output_dirpath")),
        download=fields.flag("should_download"),
        data_source=fields.one_of("data_source", SOURCES) if config.values.get("data_source") else None,
        overwrite_conflicts=fields.flag("overwrite_metrics_conflicts"),
    )
    return data.run_prepare(config.require_valid(), request, as_json=fields.flag("json"))


def download_dataset_from_hf(arguments: NgArguments) -> int:
    """Download a file of a Hub dataset, or its splits as JSONL."""
    from gymnast.cli import data
    from gymnast.data.fetch import FetchRequest, validate_request

    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    output, folder = fields.optional("output_fpath"), fields.optional("output_dirpath")
    request = FetchRequest(
        repo_id=fields.text("repo_id"),
        artifact=fields.optional("artifact_fpath"),
        split=fields.optional("split"),
        output=Path(output) if output else None,
        output_dir=Path(folder) if folder else None,
        revision=fields.optional("revision"),
    )
    try:
        validate_request(request)
    except UserError as error:
        raise FieldError(error.what, next=error.next) from error
    return data.run_download(config.require_valid(), request, as_json=fields.flag("json"))


def materialize_prompts(arguments: NgArguments) -> int:
    """Apply a prompt template to a dataset."""
    from gymnast.cli import data

    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    source, template = fields.text("input_jsonl_fpath"), fields.text("prompt_config")
    target = Path(fields.text("output_jsonl_fpath"))
    return data.run_render(config.require_valid(), source, template, target, as_json=fields.flag("json"))
