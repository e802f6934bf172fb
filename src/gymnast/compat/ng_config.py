"""Printing and validating a configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gymnast.cli.options import say
from gymnast.compat.ng_arguments import Fields, NgArguments
from gymnast.errors import NotFoundError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gymnast.compat.ng_manifest import ManifestTarget
    from gymnast.config import Config
    from gymnast.errors import Problem

INVALID: Final = 1


def dump_config(arguments: NgArguments) -> int:
    """Print the merged YAML, secrets masked."""
    from gymnast.cli.config import masked_yaml

    print(masked_yaml(arguments.config(stub_policy=True).require_valid()), end="")
    return 0


def validate(arguments: NgArguments) -> int:
    """Print all problems; nothing is started.

    As there, the settings of servers written for NeMo Gym do not decide: what is wrong with them is a note.
    """
    from gymnast.cli.options import print_json

    target = _find_manifest(arguments)
    config = (target.arguments if target else of_workload(arguments)).config(stub_policy=True)
    problems, notes = find_problems(config)
    if target is not None and not problems:
        from gymnast.compat.ng_manifest import validate_manifest

        fields = Fields(config)
        return validate_manifest(target, sync=fields.flag("sync"), as_json=fields.flag("json"))
    if Fields(config).flag("json"):
        print_json({"valid": not problems, "problems": _as_json(problems), "notes": _as_json(notes)})
        return INVALID if problems else 0
    for note in notes:
        say(f"note: {note}")
    for problem in problems:
        say(f"problem: {problem}")
    if problems:
        return INVALID
    print(f"valid: {len(config.instances)} instances ({', '.join(config.instances)}) from {len(config.files)} files")
    return 0


def _find_manifest(arguments: NgArguments) -> ManifestTarget | None:
    """The manifest to check: a file, or that of the environment or benchmark NAME if it has one."""
    from gymnast.compat.ng_manifest import ManifestTarget, manifest_next_to

    fields = Fields(arguments.config(stub_policy=True))
    path, name = fields.optional("manifest_path"), fields.optional("onboarding_name")
    if fields.flag("update_expected"):
        raise UserError("update_expected is for the cases of a verifier", next="gym env test NAME --update-expected")
    if path is not None:
        if name is not None or fields.optional("catalog_kind"):
            raise UserError("--manifest takes no NAME and no --kind", next="pass only one of them")
        if not Path(path).expanduser().is_file():
            raise NotFoundError(f"the manifest '{path}' does not exist")
        return ManifestTarget.of(Path(path), arguments)
    selected = of_workload(arguments)
    config = selected.config(stub_policy=True)
    manifest = manifest_next_to(config, selected.config_paths[-1]) if name is not None else None
    if manifest is not None:
        return ManifestTarget.of(manifest, arguments)
    if fields.flag("sync"):
        what = f"'{name}' has no manifest" if name else "--sync needs a manifest"
        raise UserError(what, next="add the name of an environment with a manifest.yaml, or --manifest PATH")
    return None


def find_problems(config: Config) -> tuple[list[Problem], list[Problem]]:
    """The problems of a configuration, and those that are only noted."""
    settings, notes = _settings_problems(config)
    return [*config.problems, *settings], notes


def of_workload(arguments: NgArguments) -> NgArguments:
    """The arguments with the config of the environment or benchmark NAME, if one is named."""
    from gymnast.compat.ng_listing import find_workload_config

    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    name = fields.optional("onboarding_name")
    if name is None:
        if config.values.get("catalog_kind"):
            raise UserError("catalog_kind needs the name of an environment or benchmark", next="add NAME")
        return arguments
    kind = fields.one_of("catalog_kind", ("environment", "benchmark")) if config.values.get("catalog_kind") else None
    return replace(arguments, config_paths=(*arguments.config_paths, find_workload_config(config.roots, name, kind)))


def _settings_problems(config: Config) -> tuple[list[Problem], list[Problem]]:
    """The problems of our own servers' settings, and those of others."""
    from gymnast.runtime.loader import check_settings, is_native

    own: list[Problem] = []
    others: list[Problem] = []
    for instance in config.instances.values() if config.strict_settings else ():
        problems = check_settings(instance)
        if problems:
            (own if is_native(instance) else others).extend(problems)
    return own, others


def _as_json(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    return [{"what": problem.what, "where": problem.where, "next": problem.next} for problem in problems]
