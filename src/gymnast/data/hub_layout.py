"""Which files of a Hub repository belong to which split, from its card or else from its file names."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.types.json import JsonObject

LINES: Final = (".jsonl", ".ndjson", ".json")
"""Formats whose rows can be read, also gzip-compressed."""
_DATA: Final = (*LINES, ".parquet", ".csv", ".tsv", ".arrow", ".txt", ".zst", ".bz2", ".xz", ".zip", ".tar")
_WORDS: Final = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_METADATA: Final = frozenset({"dataset_infos.json", "dataset_info.json"})


def split_files(files: Sequence[str], card: JsonObject) -> dict[str, list[str]]:
    """The data files of each split, sorted by name."""
    data = sorted(name for name in files if is_data(name))
    splits = _from_card(data, card) or _from_names(data)
    return {split: names for split, names in splits.items() if names}


def is_data(name: str) -> bool:
    """True if a file holds rows, in any format."""
    base = name.rsplit("/", 1)[-1]
    return suffix_of(base) in _DATA and not base.startswith(".") and base not in _METADATA


def suffix_of(name: str) -> str:
    """The format of a file, ignoring gzip compression: `.jsonl` of `train.jsonl.gz`."""
    return PurePosixPath(name.lower().removesuffix(".gz")).suffix


def _from_card(data: Sequence[str], card: JsonObject) -> dict[str, list[str]]:
    configs = [config for config in card.get("configs") or [] if isinstance(config, dict)]
    if not configs:
        return {}
    defaults = [config for config in configs if config.get("default") or config.get("config_name") == "default"]
    if len(configs) > 1 and not defaults:
        names = ", ".join(str(config.get("config_name")) for config in configs)
        raise DataError(
            f"the dataset has several configurations and no default: {names}", next="name one of its files instead"
        )
    splits: dict[str, list[str]] = {}
    for split, pattern in _patterns((defaults or configs)[0].get("data_files")):
        splits.setdefault(split, []).extend(name for name in data if fnmatchcase(name, pattern.removeprefix("./")))
    return {split: sorted(set(names)) for split, names in splits.items()}


def _patterns(data_files: Any) -> Iterator[tuple[str, str]]:
    """`data_files` of a card: a pattern, a list of patterns, or a list of `{split, path}`."""
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        if isinstance(entry, str):
            yield "train", entry
        elif isinstance(entry, dict):
            paths = entry.get("path")
            for pattern in paths if isinstance(paths, list) else [paths]:
                yield str(entry.get("split") or "train"), str(pattern)


def _from_names(data: Sequence[str]) -> dict[str, list[str]]:
    """Files whose path contains a split's name as a word; if none does, all files are `train`."""
    splits = {split: [name for name in data if _has_word(name, words)] for split, words in _WORDS.items()}
    return splits if any(splits.values()) else {"train": list(data)}


def _has_word(name: str, words: Sequence[str]) -> bool:
    return re.search(rf"(?<![a-z])(?:{'|'.join(words)})(?![a-z])", name.lower()) is not None
