"""`gym env test NAME` and `gym env publish NAME`: the checks of an environment or benchmark, by its name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from gymnast.cli.options import print_json, say
from gymnast.compat.ng_arguments import Fields, NgArguments
from gymnast.compat.ng_catalog import ConfigReader
from gymnast.compat.ng_components import RESOURCES
from gymnast.compat.ng_config import find_problems, of_workload
from gymnast.compat.ng_manifest import ManifestTarget, find_fixture, manifest_next_to, run_fixture
from gymnast.errors import UserError

if TYPE_CHECKING:
    from gymnast.config import Config

_PLACEHOLDER: Final = "TODO"
_OWN_FIELDS: Final = frozenset({"onboarding_name", "catalog_kind", "update_expected", "json", "verbose"})


def test_workload(arguments: NgArguments) -> int:
    """Run the verifier cases of an environment or benchmark.

    They are those that its server declares for NeMo Gym if it has a manifest, else those of `gymnast check env`.
    """
    selected = of_workload(arguments)
    config = selected.config(stub_policy=True)
    fields = Fields(config)
    update, as_json = fields.flag("update_expected"), fields.flag("json")
    manifest, server = manifest_next_to(config, selected.config_paths[-1]), find_fixture(config)
    if manifest is None or server is None:
        return _check_environment(arguments, config, update_expected=update, as_json=as_json)
    report = run_fixture(ManifestTarget.of(manifest, arguments), server, update_expected=update)
    if as_json:
        print_json(report)
    else:
        print(f"{report['name']} ({report['resources_server']}): {len(report['cases'])} verifier cases pass")
    return 0


def _check_environment(arguments: NgArguments, config: Config, *, update_expected: bool, as_json: bool) -> int:
    from gymnast.checks.case_updates import update_cases
    from gymnast.checks.environment import find_environment
    from gymnast.cli import check

    words = [word for word in arguments.words if word.lstrip("+").partition("=")[0] not in _OWN_FIELDS]
    name, dirs = _server(config), list(arguments.search_dirs)
    if update_expected:
        target = find_environment(name, overrides=words, search_dirs=dirs)
        changed = asyncio.run(update_cases(target))
        say(f"updated {target.cases_path}: {', '.join(changed)}" if changed else f"{target.cases_path} is up to date")
    return check.env(name, words, search_dirs=dirs, as_json=as_json)


def publish(arguments: NgArguments) -> int:
    """Check what must be true before others use an environment or benchmark; print what to do with it."""
    name = Fields(arguments.config(stub_policy=True)).optional("onboarding_name")
    if name is None:
        raise UserError(
            "gym env publish needs the name of an environment or benchmark", next="see gym list environments"
        )
    selected = of_workload(arguments)
    config = selected.config(stub_policy=True)
    manifest = _manifest(config, selected.config_paths[-1], name)
    problems, _ = find_problems(config)
    if problems:
        raise UserError(f"the config of '{name}' has problems: {problems[0]}", next=f"gym env validate {name}")
    cases = _check_verifier(selected, config, name)
    report = {"name": name, **{key: manifest.get(key) for key in ("kind", "version")}, "status": "experimental"}
    report["verifier_cases"] = cases
    if Fields(config).flag("json"):
        print_json(report)
    else:
        print(f"{name} passes all checks ({cases} verifier cases)")
        print("next  share its folders; others use them with --search-dir")
    return 0


def _check_verifier(selected: NgArguments, config: Config, name: str) -> int:
    """Run the cases that the server declares for NeMo Gym, or our own checks; returns how many cases there are."""
    from gymnast.checks.conformance import SuiteOptions
    from gymnast.checks.environment import check_target, find_environment

    path, server = manifest_next_to(config, selected.config_paths[-1]), find_fixture(config)
    if path is not None and server is not None:
        return len(run_fixture(ManifestTarget.of(path, selected), server, update_expected=False)["cases"])
    target = find_environment(_server(config), search_dirs=list(selected.search_dirs))
    result = asyncio.run(check_target(target, SuiteOptions()))
    if not result.ok:
        say(str(result))
        raise UserError(f"'{name}' does not pass its checks", next=f"gym env test {name}")
    return len(target.cases)


def _server(config: Config) -> str:
    """The resources server of a configuration, as `gymnast check env` names it."""
    path = next((path for path in config.files if path.startswith(f"{RESOURCES}/")), None)
    if path is not None:
        _, folder, _, file = path.split("/")[:4]
        flavor = file.removesuffix(".yaml")
        return folder if flavor == folder else f"{folder}/{flavor}"
    servers = [instance.implementation for instance in config.instances.values() if instance.kind == RESOURCES]
    if not servers:
        raise UserError("the configuration has no resources server")
    return servers[0]


def _manifest(config: Config, path: str, name: str) -> dict[str, Any]:
    """The manifest of a workload, filled in."""
    folder = config.roots.require(path, "the config").parent
    manifest = ConfigReader().manifest(folder)
    if manifest is None:
        raise UserError(
            f"'{name}' has no manifest and cannot be published", where=str(folder), next="add manifest.yaml"
        )
    empty = sorted(
        key for key, value in manifest.items() if _PLACEHOLDER in (value if isinstance(value, list) else [value])
    )
    if empty:
        raise UserError(f"the manifest of '{name}' is not filled in: {', '.join(empty)}", where=str(folder))
    return manifest
