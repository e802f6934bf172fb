"""Datasets in a GitLab model registry: upload, download, delete, and migrate to the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gymnast.compat import ng_data, ng_upload
from gymnast.compat.ng_arguments import FieldError, Fields, NgArguments
from gymnast.data.model_registry import ModelRegistry, RegistryFile

if TYPE_CHECKING:
    from gymnast.config import Config


def upload_to_gitlab(arguments: NgArguments) -> int:
    """Upload a file to a version of a dataset, and print how to download it."""
    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    name, version, source = (fields.text(key) for key in ("dataset_name", "version", "input_jsonl_fpath"))
    path = config.roots.require(source, "input_jsonl_fpath")
    ModelRegistry.from_values(config.values).upload(name, version, path)
    print(f"uploaded  {name} {version}  {path.name}")
    print(
        f"next      gym dataset download --storage gitlab --name {name} --revision {version}"
        f" --artifact {path.name} --output {source}"
    )
    return 0


def download_from_gitlab(arguments: NgArguments) -> int:
    """Download a file of a dataset's version."""
    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    file = RegistryFile(fields.text("dataset_name"), fields.text("version"), fields.text("artifact_fpath"))
    target = Path(fields.text("output_fpath"))
    ModelRegistry.from_values(config.values).download(file, target)
    print(f"downloaded  {file}  {target}  {target.stat().st_size} bytes")
    return 0


def delete_from_gitlab(arguments: NgArguments) -> int:
    """Delete a dataset with all its versions, after a confirmation."""
    config = arguments.config(stub_policy=True)
    return _delete(config, Fields(config).text("dataset_name"))


def migrate_to_hf(arguments: NgArguments) -> int:
    """Upload a file to the Hub, then delete the dataset of that name from the registry."""
    config = arguments.config(stub_policy=True)
    if "delete_from_gitlab" in config.values:
        raise FieldError("this command always deletes from GitLab", next="leave out delete_from_gitlab")
    return _upload_then_delete(arguments, config)


def upload_to_hf(arguments: NgArguments) -> int:
    """Upload a file to the Hub; with `delete_from_gitlab`, then delete the dataset from the registry."""
    config = arguments.config(stub_policy=True)
    if Fields(config).flag("delete_from_gitlab"):
        return _upload_then_delete(arguments, config)
    return ng_upload.upload_dataset_to_hf(arguments)


def dataset_upload(arguments: NgArguments) -> int:
    """`gym dataset upload`: to the Hub, or with --storage gitlab to the registry."""
    return (upload_to_gitlab if arguments.values.get("storage") == "gitlab" else upload_to_hf)(arguments)


def dataset_download(arguments: NgArguments) -> int:
    """`gym dataset download`: from the Hub, or with --storage gitlab from the registry."""
    in_registry = arguments.values.get("storage") == "gitlab"
    return (download_from_gitlab if in_registry else ng_data.download_dataset_from_hf)(arguments)


def _upload_then_delete(arguments: NgArguments, config: Config) -> int:
    name = Fields(config).text("dataset_name")
    ModelRegistry.from_values(config.values)  # credentials that are missing are said before anything is uploaded
    return ng_upload.upload_dataset_to_hf(arguments) or _delete(config, name)


def _delete(config: Config, name: str) -> int:
    registry = ModelRegistry.from_values(config.values)
    if not registry.has_dataset(name):
        print(f"'{name}' is not in the registry")
        return 0
    try:
        reply = input(f"'{name}' is in the registry. Delete it with all its versions? [y/N]: ")
    except EOFError:
        reply = ""
    if reply.strip().lower() not in {"y", "yes"}:
        print(f"kept  '{name}'")
        return 0
    registry.delete_dataset(name)
    print(f"deleted  '{name}'")
    return 0
