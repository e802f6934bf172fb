"""Datasets: put together, rendered, fetched; and what is only said of registries that are not spoken here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gymnast.compat.ng_asked import Asked, FieldError, Fields
from gymnast.errors import UserError

NO_GITLAB: Final = "a GitLab model registry is not spoken here: says what to do instead"


def prepare_data(asked: Asked) -> int:
    """The configured datasets, checked, measured and put together by type."""
    from gymnast.cli import data
    from gymnast.data.configured import SOURCES
    from gymnast.data.prepare import MODES, PrepareRequest

    config = asked.config(stub_policy=True)
    fields = Fields(config)
    request = PrepareRequest(
        mode=fields.one_of("mode", MODES),
        output_dir=Path(fields.text("output_dirpath")),
        download=fields.flag("should_download"),
        data_source=fields.one_of("data_source", SOURCES) if config.values.get("data_source") else None,
        overwrite_conflicts=fields.flag("overwrite_metrics_conflicts"),
    )
    return data.run_prepare(config.checked(), request, as_json=fields.flag("json"))


def download_dataset_from_hf(asked: Asked) -> int:
    """A file of a Hub dataset, or its splits as JSONL."""
    from gymnast.cli import data
    from gymnast.data.fetch import FetchRequest, check_request

    config = asked.config(stub_policy=True)
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
        check_request(request)
    except UserError as error:
        raise FieldError(error.what, next=error.next) from error
    return data.run_download(config.checked(), request, as_json=fields.flag("json"))


def materialize_prompts(asked: Asked) -> int:
    """A dataset with a prompt template applied."""
    from gymnast.cli import data

    config = asked.config(stub_policy=True)
    fields = Fields(config)
    source, template = fields.text("input_jsonl_fpath"), fields.text("prompt_config")
    target = Path(fields.text("output_jsonl_fpath"))
    return data.run_render(config.checked(), source, template, target, as_json=fields.flag("json"))


def gitlab(asked: Asked) -> int:
    """Datasets in a GitLab model registry: not spoken here."""
    asked.config(stub_policy=True)
    raise UserError(
        "datasets in a GitLab model registry can be neither read nor written from here",
        next="fetch the file with the registry's own page or client; from the Hub: ng_download_dataset_from_hf",
    )


def dataset_download(asked: Asked) -> int:
    """`gym dataset download`: from the Hub, which is also what it means without --storage."""
    return gitlab(asked) if asked.values.get("storage") == "gitlab" else download_dataset_from_hf(asked)
