"""Checks the `datasets` of an instance: names, types, licenses and sources."""

from __future__ import annotations

from typing import Any, Final

from gymnast.errors import Problem, suggest

TYPES: Final = ("train", "validation", "example", "benchmark")
LICENSES: Final = (
    "Apache 2.0",
    "MIT",
    "Creative Commons Attribution 4.0 International",
    "Creative Commons Attribution-ShareAlike 4.0 International",
    "CC BY-SA 4.0",
    "CC BY-NC 3.0",
    "NVIDIA Internal Use Only, Do Not Distribute",
    "NVIDIA Evaluation Dataset License Agreement",
    "TBD",
    "GNU General Public License v3.0",
)
_KEYS = {"name", "type", "jsonl_fpath", "num_repeats", "license", "prompt_config", "agent"}
_REGULAR = _KEYS | {"source", "gitlab_identifier", "huggingface_identifier"}
_BENCHMARK = _KEYS | {"prepare_script", "prepare_dependencies"}
_SOURCE_FIELDS = {
    "gitlab": ({"dataset_name", "version", "artifact_fpath"}, set[str]()),
    "huggingface": ({"repo_id"}, {"artifact_fpath"}),
}


def check_datasets(datasets: Any, where: str) -> list[Problem]:
    """Everything wrong with a `datasets` list."""
    if not isinstance(datasets, list):
        return [Problem("'datasets' must be a list", where=where)]
    return [
        problem for index, entry in enumerate(datasets) for problem in _check_entry(entry, f"{where} datasets[{index}]")
    ]


def _check_entry(entry: Any, where: str) -> list[Problem]:
    if not isinstance(entry, dict):
        return [Problem("a dataset must be a mapping", where=where)]
    problems = [
        Problem(f"a dataset needs '{key}'", where=where)
        for key in ("name", "type", "jsonl_fpath")
        if not entry.get(key)
    ]
    kind = entry.get("type")
    if kind is not None and kind not in TYPES:
        problems.append(Problem(f"unknown dataset type '{kind}'", where=where, next=suggest(str(kind), TYPES)))
    known = _BENCHMARK if kind == "benchmark" else _REGULAR
    problems += [
        Problem(f"unknown key '{key}' of a dataset", where=where, next=suggest(key, known))
        for key in entry
        if key not in known
    ]
    repeats = entry.get("num_repeats", 1)
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
        problems.append(Problem(f"'num_repeats' must be a positive number, not {repeats!r}", where=where))
    return problems + _check_license(entry, where) + _check_source(entry, where)


def _check_license(entry: dict[str, Any], where: str) -> list[Problem]:
    license_name = entry.get("license")
    if license_name is None:
        if entry.get("type") in {"train", "validation"}:
            return [Problem("a train or validation dataset needs a 'license'", where=where, next=", ".join(LICENSES))]
        return []
    if entry.get("type") != "benchmark" and license_name not in LICENSES:
        return [Problem(f"unknown license '{license_name}'", where=where, next=suggest(str(license_name), LICENSES))]
    return []


def _check_source(entry: dict[str, Any], where: str) -> list[Problem]:
    source = entry.get("source")
    legacy = {name: entry.get(f"{name}_identifier") for name in _SOURCE_FIELDS if entry.get(f"{name}_identifier")}
    if source and legacy:
        return [Problem("use either 'source' or the older identifiers, not both", where=where)]
    problems = [problem for name, ids in legacy.items() for problem in _check_ids(ids, name, where)]
    if source is not None:
        kind = source.get("type") if isinstance(source, dict) else None
        if kind not in _SOURCE_FIELDS:
            return [*problems, Problem(f"'source' needs a type: {' or '.join(_SOURCE_FIELDS)}", where=where)]
        problems += _check_ids({key: value for key, value in source.items() if key != "type"}, kind, where)
    return problems


def _check_ids(ids: Any, kind: str, where: str) -> list[Problem]:
    required, optional = _SOURCE_FIELDS[kind]
    if not isinstance(ids, dict):
        return [Problem(f"the {kind} source must be a mapping", where=where)]
    missing = [Problem(f"the {kind} source needs '{key}'", where=where) for key in sorted(required - set(ids))]
    unknown = sorted(set(ids) - required - optional)
    return missing + [
        Problem(f"unknown key '{key}' of the {kind} source", where=where, next=suggest(key, required | optional))
        for key in unknown
    ]
