"""`gymnast config`: show, explain or validate a configuration without starting anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymnast.cli import options as shared

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.errors import Problem

app = typer.Typer(help="Show, explain or validate a configuration.", no_args_is_help=True, rich_markup_mode=None)


@app.command("show")
def show(
    overrides: shared.Overrides = None,
    *,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    search_dirs: shared.SearchDirs = None,
    origins: Annotated[bool, typer.Option("--origins", help="Show where each value comes from.")] = False,
    as_json: shared.JsonOutput = False,
) -> int:
    """Print the resolved configuration, secrets masked."""
    config = _load(overrides, config_files, environments, model_type, search_dirs)
    if as_json:
        shared.print_json(config.masked_values())
    elif origins:
        _print_with_origins(config)
    else:
        print(masked_yaml(config), end="")
    return _print_problems(config.problems)


@app.command("explain")
def explain(
    key: Annotated[str, typer.Argument(help="Key such as policy_base_url or mcqa.resources_servers.mcqa.domain.")],
    overrides: shared.Overrides = None,
    *,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Show where a value comes from and what it replaced."""
    from gymnast.config.explain import explain_key

    config = _load(overrides, config_files, environments, model_type, search_dirs)
    entries = explain_key(config, key, _defaults(config))
    if as_json:
        shared.print_json(entries)
        return 0
    for entry in entries:
        raw = f"  (written as {entry['written']})" if entry["written"] is not None else ""
        print(f"{entry['key']} = {entry['value']!r}{raw}")
        print(f"  from {entry['origin']}")
        for older in entry["replaced"]:
            print(f"  replaced {older['value']!r} from {older['origin']}")
    return 0


@app.command("validate")
def validate(
    overrides: shared.Overrides = None,
    *,
    config_files: shared.ConfigFiles = None,
    environments: shared.Environments = None,
    model_type: shared.ModelType = None,
    search_dirs: shared.SearchDirs = None,
    as_json: shared.JsonOutput = False,
) -> int:
    """Check a configuration and the settings of every server."""
    config = _load(overrides, config_files, environments, model_type, search_dirs)
    return check(config, as_json=as_json)


def check(config: Config, *, as_json: bool = False) -> int:
    """Print the problems of a configuration, including its servers' settings."""
    problems = all_problems(config)
    if as_json:
        rows = [{"what": problem.what, "where": problem.where, "next": problem.next} for problem in problems]
        shared.print_json({"valid": not problems, "problems": rows})
        return 2 if problems else 0
    if problems:
        return _print_problems(problems)
    if config.lacks_policy:
        shared.say("note: no policy_model is configured; collect and serve need one")
    names = ", ".join(config.instances)
    print(f"valid: {len(config.instances)} instances ({names}) from {len(config.files)} files")
    return 0


def all_problems(config: Config) -> list[Problem]:
    """Problems of the configuration and of the settings of every instance."""
    from gymnast.errors import Problem
    from gymnast.runtime.loader import check_settings

    problems = list(config.problems)
    if config.strict_settings:
        problems += [problem for instance in config.instances.values() for problem in check_settings(instance)]
    if not problems and (not config.instances or (config.lacks_policy and len(config.instances) == 1)):
        problems.append(Problem("the configuration has no instances", next="give config files: --config A.yaml"))
    return problems


def masked_yaml(config: Config) -> str:
    """The resolved configuration as YAML, secrets masked."""
    import yaml

    return yaml.safe_dump(config.masked_values(), sort_keys=False, allow_unicode=True, width=120)


def _load(overrides: Any, config_files: Any, environments: Any, model_type: Any, search_dirs: Any) -> Config:
    from gymnast.config.known_keys import RUN_KEYS

    return shared.load(
        overrides,
        config_files=config_files,
        environments=environments,
        model_type=model_type,
        search_dirs=search_dirs,
        stub_policy=True,  # a policy is needed only to run
        command_keys=RUN_KEYS,
    )


def _defaults(config: Config) -> dict[str, Any]:
    """The default of every server setting that the configuration leaves out, by full key."""
    from gymnast.runtime.loader import unset_settings

    return {
        f"{instance.config_path}.{name}": value
        for instance in config.instances.values()
        for name, value in unset_settings(instance).items()
    }


def _print_problems(problems: Any) -> int:
    for problem in problems:
        shared.say(f"problem: {problem}")
    if problems:
        shared.say(f"{len(problems)} problem" + ("s" if len(problems) > 1 else ""))
    return 2 if problems else 0


def _print_with_origins(config: Config) -> None:
    from gymnast.config.explain import explain_key

    defaults = _defaults(config)
    for name in config.values:
        for entry in explain_key(config, name, defaults):
            print(f"{entry['key']}: {entry['value']!r}  # {entry['origin']}")
