"""`check env`: loads an environment by name, starts it in a cell of this process and runs the conformance suite."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from gymnast.checks.conformance import (
    Case,
    CheckResult,
    EnvironmentResult,
    Subject,
    SuiteOptions,
    parse_cases,
    run_suite,
)
from gymnast.checks.conformance.subject import CALL_TIMEOUT_S, Outcome, play
from gymnast.config import compose, read_environ
from gymnast.config.compose import config_path
from gymnast.errors import ConfigError, NotFoundError, Problem, UserError, suggest
from gymnast.kit import Environment, StepEnvironment, Task, list_tools
from gymnast.runtime.cell import Cell, make_cell_options
from gymnast.runtime.loader import check_settings, is_server_class, load_entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from gymnast.config import Config, Environ, Instance
    from gymnast.wire.calls import Calls


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """An environment to check, with its configuration, rows and cases; not started."""

    name: str
    config: Config
    environ: Environ
    instance: Instance
    rows: list[Any]
    rows_path: str
    cases: list[Case]
    cases_path: str
    problems: list[Problem]
    """Problems found when reading rows and cases."""


async def check_environment(
    name: str,
    *,
    overrides: Sequence[str] = (),
    config_paths: Sequence[str] = (),
    search_dirs: Sequence[Path] = (),
    options: SuiteOptions | None = None,
) -> EnvironmentResult:
    """Run the conformance suite on the environment NAME[/FLAVOR]: `assert result.ok, result`."""
    target = find_environment(name, overrides=overrides, config_paths=config_paths, search_dirs=search_dirs)
    return await check_target(target, options or SuiteOptions())


async def check_target(target: CheckTarget, options: SuiteOptions) -> EnvironmentResult:
    """Run the conformance suite on a loaded environment."""
    claim = "the configuration and every server's settings are valid"
    problems = _problems(target)
    if problems:
        located = [Problem(p.what, p.where or target.name, p.next or "correct the configuration") for p in problems]
        return EnvironmentResult(target.name, target.instance.name, [CheckResult("config", claim, tuple(located))])
    with tempfile.TemporaryDirectory(prefix="gymnast-check-") as logs:  # hostile inputs cause many log lines
        async with open_subject(target, Path(logs)) as subject:
            results = await run_suite(subject, options, target.problems)
    return EnvironmentResult(target.name, target.instance.name, [CheckResult("config", claim), *results])


async def play_case(target: CheckTarget, case_name: str) -> Outcome:
    case = next((case for case in target.cases if case.name == case_name), None)
    if case is None:
        known = [case.name for case in target.cases]
        raise NotFoundError(f"unknown case '{case_name}'", where=target.cases_path, next=suggest(case_name, known))
    async with open_subject(target, None) as subject:
        return await play(subject, case.request)


def find_environment(
    name: str,
    *,
    overrides: Sequence[str] = (),
    config_paths: Sequence[str] = (),
    search_dirs: Sequence[Path] = (),
) -> CheckTarget:
    """Load an environment by name: its config, overridden by data/check.yaml, its rows and cases."""
    environ = read_environ()
    config = _load(environ, name, overrides, config_paths, search_dirs)
    folder, _, flavor = name.partition("/")
    path = config.roots.require(config_path("resources_servers", name), "the environment's config")
    data = path.parents[1] / "data"
    extra = _flavor_path(data, flavor, "check.yaml")
    if extra.exists():
        config = _load(environ, name, overrides, [*config_paths, str(extra)], search_dirs)
    instance = _instance(config, folder, name)
    if not data.exists() and instance.directory is not None:  # the config has another name than the folder
        data, flavor = instance.directory / "data", flavor or folder
    cases_file = _flavor_path(data, flavor, "verifier_cases.jsonl")
    cases_path = config.roots.relative(cases_file)
    cases, problems = list[Case](), list[Problem]()
    if cases_file.exists():
        cases, problems = parse_cases(cases_file.read_bytes().split(b"\n"), cases_path)
    rows_file = _rows_file(config, instance, data / "example.jsonl")
    rows, bad_rows = _read_rows(rows_file, config.roots.relative(rows_file))
    return CheckTarget(
        name, config, environ, instance, rows, config.roots.relative(rows_file), cases, cases_path, problems + bad_rows
    )


def configured_target(config: Config, environ: Environ, instance: Instance) -> CheckTarget:
    """An environment as a run has it configured, with the cases of its folder and no rows."""
    cases_file = (instance.directory or Path()) / "data" / "verifier_cases.jsonl"
    cases = parse_cases(cases_file.read_bytes().split(b"\n"), str(cases_file))[0] if cases_file.exists() else []
    return CheckTarget(instance.name, config, environ, instance, [], "", cases, str(cases_file), [])


@asynccontextmanager
async def open_subject(target: CheckTarget, log_dir: Path | None) -> AsyncIterator[Subject]:
    """Start the environment and the instances that it uses."""
    instance = target.instance
    form, stateful, task_type, has_kit_sessions = _read_traits(instance)
    async with _open_calls(target, log_dir) as calls:
        yield Subject(
            instance=instance.name,
            calls=calls,
            form=form or await _probe_form(calls, instance.name),
            stateful=stateful,
            task_type=task_type,
            reopen=(lambda ttl_s: _open_calls(target, log_dir, session_ttl_s=ttl_s)) if has_kit_sessions else None,
            rows=target.rows,
            rows_path=target.rows_path,
            cases=target.cases,
            cases_path=target.cases_path,
            tools=await list_tools(calls, instance.name, CALL_TIMEOUT_S),
            agents=frozenset(agent.name for agent in agents_of(target.config, instance)),
        )


@asynccontextmanager
async def _open_calls(target: CheckTarget, log_dir: Path | None, **settings: Any) -> AsyncIterator[Calls]:
    instance = replace(target.instance, settings={**target.instance.settings, **settings})
    instances = [instance, *_find_dependencies(target.instance, target.config.instances)]
    async with Cell(instances, make_cell_options(target.config, target.environ, log_dir=log_dir)) as cell:
        yield cell.calls


def _find_dependencies(instance: Instance, known: Mapping[str, Instance]) -> list[Instance]:
    """The instances that an instance refers to, directly or indirectly."""
    used: dict[str, Instance] = {}
    waiting = [ref.name for ref in instance.refs.values()]
    while waiting:
        name = waiting.pop()
        if name in known and name not in used and name != instance.name:
            used[name] = known[name]
            waiting += [ref.name for ref in known[name].refs.values()]
    return list(used.values())


def _read_traits(instance: Instance) -> tuple[Literal["verify", "step"] | None, bool, type[Task] | None, bool]:
    """Its form, whether it has sessions, its task type, and whether its sessions are the kit's."""
    try:
        entry = load_entry(instance)
    except UserError:  # its packages are not installed, so its class cannot be inspected
        return None, True, None, False
    if not is_server_class(entry):
        return None, True, None, False
    if issubclass(entry, StepEnvironment):
        return "step", True, entry.task_type, True
    if issubclass(entry, Environment):
        stateful = entry.open is not Environment.open
        return "verify", stateful, entry.task_type, stateful and not entry.scores_without_session
    return None, True, None, False


async def _probe_form(calls: Calls, instance: str) -> Literal["verify", "step"]:
    return "verify" if (await calls.call(instance, "/reset", {})).status == 404 else "step"


def _problems(target: CheckTarget) -> list[Problem]:
    problems = list(target.config.problems)
    if target.config.strict_settings:
        problems += [problem for instance in target.config.instances.values() for problem in check_settings(instance)]
    return problems


def _load(
    environ: Environ, name: str, overrides: Sequence[str], config_paths: Sequence[str], search_dirs: Sequence[Path]
) -> Config:
    first = config_path("resources_servers", name)
    return compose(
        environ, overrides=overrides, config_paths=[first, *config_paths], search_dirs=search_dirs, stub_policy=True
    )


def _instance(config: Config, folder: str, name: str) -> Instance:
    servers = [instance for instance in config.instances.values() if instance.kind == "resources_servers"]
    own = [instance for instance in servers if instance.implementation == folder]
    if own or len(servers) == 1:
        return (own or servers)[0]
    if config.problems:
        raise ConfigError(config.problems)
    raise UserError(
        f"the config of '{name}' has no resources server '{folder}'",
        where=config_path("resources_servers", name),
        next=f"name the implementation like its folder: resources_servers: {{{folder}: …}}",
    )


def agents_of(config: Config, instance: Instance) -> list[Instance]:
    """The agents that use an environment."""
    agents = [config.instances[name] for name in config.agents]
    return [agent for agent in agents if any(ref.name == instance.name for ref in agent.refs.values())]


def _rows_file(config: Config, instance: Instance, default: Path) -> Path:
    """The config's example dataset, or data/example.jsonl in the environment's folder."""
    for agent in [*agents_of(config, instance), instance]:
        for dataset in agent.datasets:
            if dataset.get("type") == "example":
                path = str(dataset.get("jsonl_fpath"))
                return config.roots.find(path) or Path(path)
    return default


def _flavor_path(data: Path, flavor: str, name: str) -> Path:
    """`FLAVOR_name` if the flavor has its own file, else `name`."""
    own = data / f"{flavor}_{name}"
    return own if flavor and own.exists() else data / name


def _read_rows(path: Path, shown: str) -> tuple[list[Any], list[Problem]]:
    if not path.exists():
        return [], []
    rows, problems = list[Any](), list[Problem]()
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            rows += [orjson.loads(line)] if line.strip() else []
        except orjson.JSONDecodeError as error:
            problems.append(Problem(f"not JSON: {error}", f"{shown} line {number}", "correct the line"))
    return rows, problems
