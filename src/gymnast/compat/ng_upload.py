"""`ng_upload_dataset_to_hf`: upload a JSONL file to a private Hub dataset with NeMo Gym's naming scheme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.compat.ng_arguments import FieldError, Fields, NgArguments
from gymnast.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.config import Config

PREFIX: Final = "Nemotron-RL"


def upload_dataset_to_hf(arguments: NgArguments) -> int:
    """Check the rows, publish the file, and print where it is."""
    from gymnast.cli.data import make_hub

    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    source = config.roots.require(fields.text("input_jsonl_fpath"), "input_jsonl_fpath")
    repo, split = _repository(config, fields), fields.optional("split")
    check_rows(source, needs_params=split == "train")
    where = make_hub(config).publish(
        repo,
        source,
        f"{split}.jsonl" if split else source.name,
        revision=fields.optional("revision"),
        create_pr=fields.flag("create_pr"),
        message=(fields.optional("commit_message"), fields.optional("commit_description")),
        collection=_collection(fields),
    )
    print(f"published  {repo}  {where}")
    return 0


def check_rows(source: Path, *, needs_params: bool) -> None:
    """Raise for a row that could not be used once it is published."""
    from gymnast.store.lines import numbered_lines
    from gymnast.types.task import PARAMS

    for number, line in numbered_lines(source):
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise DataError(f"a row is not JSON: {error.msg}", where=f"{source} line {number}") from error
        if not isinstance(row, dict) or (needs_params and not isinstance(row.get(PARAMS), dict)):
            raise DataError(f"a row for training needs {PARAMS}", where=f"{source} line {number}")


def _repository(config: Config, fields: Fields) -> str:
    """`ORG/PREFIX-domain-NAME`; the domain and the default name come from the server's config."""
    server, domain = _server(config, fields.optional("resource_config_path"))
    name = fields.optional("dataset_name") or server
    if name is None:
        raise FieldError("+dataset_name=… is required", next="or set +resource_config_path=… to its server's config")
    prefix = config.values.get("hf_dataset_prefix", PREFIX)
    return f"{fields.text('hf_organization')}/" + "-".join(str(part) for part in (prefix, domain, name) if part)


def _server(config: Config, path: str | None) -> tuple[str | None, str | None]:
    if path is None:
        return None, None
    from gymnast.config.tree import plain
    from gymnast.config.yaml_source import read_yaml

    blocks: Any = plain(read_yaml(config.roots.require(path, "resource_config_path"), shown=path))
    for block in blocks.values():
        servers = block.get("resources_servers") if isinstance(block, dict) else None
        for name, settings in servers.items() if isinstance(servers, dict) else ():
            domain = settings.get("domain") if isinstance(settings, dict) else None
            return str(name), str(domain).lower() if domain else None
    raise FieldError(
        "resource_config_path has no resources server", next="set it to the config of the dataset's server"
    )


def _collection(fields: Fields) -> str | None:
    name, slug = fields.optional("hf_collection_name"), fields.optional("hf_collection_slug")
    if (name is None) != (slug is None):
        raise FieldError("hf_collection_name and hf_collection_slug must be set together")
    return f"{fields.text('hf_organization')}/{name}-{slug}" if name else None
