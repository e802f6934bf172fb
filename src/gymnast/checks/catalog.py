"""The catalog of environments: what each is for, its data, what it needs, and whether it can run here. Starts none."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gymnast.config import compose
from gymnast.config.compose import config_path
from gymnast.config.roots import BUILTIN, Roots
from gymnast.errors import ConfigError, Problem, UserError
from gymnast.sandbox.drivers import find_bubblewrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gymnast.config import Config, Environ, Instance

SANDBOX = "sandbox"
"""The entry of `needs` for environments that run model-written programs; any other entry is an extra."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Tasks of an environment: where they are, or where they come from if they are not here."""

    name: str
    type: str
    path: str
    is_present: bool
    source: str | None = None


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """An environment that a command line can name."""

    name: str
    purpose: str | None
    domain: str | None
    config: str
    is_builtin: bool
    data: tuple[Dataset, ...]
    needs: tuple[str, ...]
    own_packages: bool
    """It lists packages of its own, which are installed separately on first use."""
    problem: str | None = None
    """Why it cannot run here; None if it can."""
    next: str | None = None


def list_environments(environ: Environ, search_dirs: Sequence[Path] = ()) -> list[CatalogEntry]:
    """Every environment in the search folders, here and among the built-ins, by name."""
    roots = Roots((*search_dirs, *environ.extra_roots), Path.cwd())
    sandbox_problem = _find_sandbox_problem()
    return [_describe(environ, search_dirs, roots, name, sandbox_problem) for name in environment_names(roots)]


def environment_names(roots: Roots) -> list[str]:
    """The environments NAME[/FLAVOR] that these folders have."""
    names = set()
    for root in roots:
        for path in (root / "resources_servers").glob("*/configs/*.yaml"):
            folder = path.parents[1].name
            names.add(folder if path.stem == folder else f"{folder}/{path.stem}")
    return sorted(names)


def missing_packages(extra: str) -> list[str]:
    """The packages of one of our extras that are not installed, or too old."""
    return [str(requirement) for requirement in _requirements_of(extra) if not _is_installed(requirement)]


def _describe(
    environ: Environ, search_dirs: Sequence[Path], roots: Roots, name: str, sandbox_problem: Problem | None
) -> CatalogEntry:
    path = config_path("resources_servers", name)
    file = roots.find(path)
    is_builtin = file is not None and file.is_relative_to(BUILTIN)
    try:
        config = compose(environ, environments=[name], search_dirs=search_dirs, stub_policy=True)
    except ConfigError as error:
        first = error.problems[0]
        return CatalogEntry(name, None, None, path, is_builtin, (), (), False, str(first), first.next)  # noqa: FBT003
    servers = [instance for instance in config.instances.values() if instance.kind == "resources_servers"]
    block = _block(config, servers[0]) if servers else {}
    needs = tuple(dict.fromkeys(need for server in servers for need in _needs(_block(config, server))))
    own_packages = any(server.directory and (server.directory / "requirements.txt").exists() for server in servers)
    problem = _find_problem(config, needs, sandbox_problem)
    return CatalogEntry(
        name,
        block.get("description") if isinstance(block.get("description"), str) else None,
        block.get("domain"),
        path,
        is_builtin,
        tuple(_datasets(config)),
        needs,
        own_packages,
        _sentence(problem),
        problem.next if problem is not None else None,
    )


def _block(config: Config, server: Instance) -> dict[str, Any]:
    """The server's block, with the keys that are not settings."""
    value: Any = config.masked_values()
    for key in server.config_path.split("."):
        value = value.get(key, {}) if isinstance(value, dict) else {}
    return value if isinstance(value, dict) else {}


def _needs(block: dict[str, Any]) -> Iterator[str]:
    needs = block.get("needs")
    yield from (str(need) for need in needs) if isinstance(needs, list) else ()


def _find_problem(config: Config, needs: Sequence[str], sandbox_problem: Problem | None) -> Problem | None:
    """The first reason why the environment cannot run here."""
    if config.problems:
        return config.problems[0]
    for need in needs:
        if need == SANDBOX:
            if sandbox_problem is not None:
                return sandbox_problem
            continue
        missing = missing_packages(need)
        if missing:
            return Problem(f"not installed: {', '.join(missing)}", next=f"pip install 'gymnast[{need}]'")
    return None


def _find_sandbox_problem() -> Problem | None:
    try:
        asyncio.run(find_bubblewrap())
    except UserError as error:
        return Problem(error.what, error.where, error.next)
    return None


def _sentence(problem: Problem | None) -> str | None:
    if problem is None:
        return None
    return f"{problem.where}: {problem.what}" if problem.where else problem.what


def _datasets(config: Config) -> Iterator[Dataset]:
    for instance in config.instances.values():
        for entry in _block(config, instance).get("datasets") or ():
            if not isinstance(entry, dict) or not isinstance(entry.get("jsonl_fpath"), str):
                continue
            path = entry["jsonl_fpath"]
            is_present = config.roots.find(path) is not None
            yield Dataset(str(entry.get("name")), str(entry.get("type")), path, is_present, _source(entry))


def _source(entry: dict[str, Any]) -> str | None:
    source = entry.get("source") or entry.get("huggingface_identifier") or entry.get("gitlab_identifier")
    if isinstance(source, dict):
        return str(source.get("repo_id") or source.get("dataset_name") or "") or None
    return str(entry["prepare_script"]) if entry.get("prepare_script") else None


def _requirements_of(extra: str) -> Iterator[Requirement]:
    try:
        lines = metadata.requires("gymnast") or []
    except metadata.PackageNotFoundError:  # run from a source tree
        return
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is not None and "extra" in str(marker) and marker.evaluate({"extra": canonicalize_name(extra)}):
            yield requirement


def _is_installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False
