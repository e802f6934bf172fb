"""The card of a dataset, `README.md`: how to load it, where its rows came from, and what was left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from gymnast.train.dataset.schema import card_features

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.train.dataset.files import DataFile
    from gymnast.train.dataset.schema import Kind
    from gymnast.types.json import JsonObject

_SIZES: Final = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_LOADERS: Final = {
    "sft": "`messages` and `tools` are in the form of chat templates: TRL's SFTTrainer, Axolotl and NeMo RL read them.",
    "dpo": "`prompt`, `chosen` and `rejected` are chat messages: TRL's DPOTrainer reads them.",
    "kto": "`prompt`, `completion` and `label` are chat messages and a boolean: TRL's KTOTrainer reads them.",
    "rl": "Every row is a task as it was given to `gymnast collect`.",
}


def render_card(
    manifest: JsonObject, files: Sequence[DataFile], columns: Mapping[str, Kind] | None, splits: Sequence[str]
) -> bytes:
    """The card. The same export gives the same bytes."""
    head: dict[str, Any] = {
        "pretty_name": manifest["name"],
        "tags": ["gymnast", "rollouts", manifest["format"]],
        "task_categories": ["text-generation"],
        "size_categories": [_size(sum(file.rows for file in files))],
        "configs": [{"config_name": "default", "data_files": _data_files(files, splits)}],
    }
    if columns is not None:
        rows = [(split, [file for file in files if file.split == split]) for split in splits]
        head["dataset_info"] = {
            "features": card_features(columns),
            "splits": [
                {"name": split, "num_examples": sum(f.rows for f in own), "num_bytes": sum(f.size_bytes for f in own)}
                for split, own in rows
            ],
        }
    text = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{text}---\n\n{_body(manifest, files)}".encode()


def _data_files(files: Sequence[DataFile], splits: Sequence[str]) -> list[dict[str, Any]]:
    listed = []
    for split in splits:
        paths = [file.path for file in files if file.split == split and file.rows]
        if paths:
            listed.append({"split": split, "path": paths if len(paths) > 1 else paths[0]})
    return listed


def _body(manifest: JsonObject, files: Sequence[DataFile]) -> str:
    lines = [f"# {manifest['name']}", ""]
    counts = manifest["counts"]
    origin = f"{counts['rows']} rows from {counts['rollouts']} scored rollouts of {counts['tasks']} tasks."
    lines += [
        f"Exported with Gymnast {manifest['gymnast']} as `{manifest['format']}`: {origin}",
        _LOADERS.get(manifest["format"], "One row per rollout, with its messages, reward and origin."),
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'dataset = load_dataset("path/to/this/folder")',
        "```",
        "",
        "## Origin",
        "",
        "| run | id | collected | models | agents | input digest | bytes of rollouts | CRC-32 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in manifest["runs"]:
        cells = [run["name"], run["id"], run["collected"], ", ".join(run["models"]), ", ".join(run["agents"])]
        cells += [run["input_digest"], run["size_bytes"], run["crc32"]]
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    lines += ["", "## Selection", ""]
    lines += [f"- {name}: `{value}`" for name, value in manifest["options"].items()]
    lines += ["", "## Left out", ""]
    left_out = {**counts["left_out"], **{f"failed: {kind}": count for kind, count in counts["failed"].items()}}
    lines += [f"- {reason}: {count}" for reason, count in left_out.items()] or ["- nothing"]
    lines += ["", f"Secrets masked: {counts['secrets_masked']}.", "", "## Files", ""]
    lines += ["| file | split | rows | bytes | SHA-256 |", "|---|---|---|---|---|"]
    lines += [f"| {file.path} | {file.split} | {file.rows} | {file.size_bytes} | `{file.sha256}` |" for file in files]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return str(value if value is not None else "").replace("|", "\\|").replace("\n", " ")


def _size(rows: int) -> str:
    return next((name for limit, name in _SIZES if rows < limit), "n>1M")
