"""The conformance suite on an environment by name: its config loaded, its instance live in a cell of this process."""

from __future__ import annotations

import tempfile
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from gymnast.config import compose, read_environ
from gymnast.config.compose import config_path
from gymnast.errors import ConfigError, NotFoundError, Problem, UserError, suggest
from gymnast.kit import Environment, StepEnvironment, Task
from gymnast.kit.conformance import Finding, Report, Result, Subject, SuiteOptions, parse_cases, run_suite
from gymnast.kit.conformance.subject import Outcome, play
from gymnast.runtime.cell import Cell, options_from
from gymnast.runtime.loader import check_settings, is_server_class, load_entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from gymnast.config import Config, Environ, Instance
    from gymnast.kit.conformance import Case
    from gymnast.wire.calls import Calls


@dataclass(frozen=True, slots=True)
class Candidate:
    """An environment that is to be checked, found and configured; nothing is started yet."""

    name: str
    config: Config
    environ: Environ
    instance: Instance
    rows: list[Any]
    rows_at: str
    cases: list[Case]
    cases_at: str
    findings: list[Finding]
    """What reading rows and cases already found."""


async def check_environment(
    name: str,
    *,
    overrides: Sequence[str] = (),
    config_paths: Sequence[str] = (),
    search_dirs: Sequence[Path] = (),
    options: SuiteOptions | None = None,
) -> Report:
    """Run the conformance suite on the environment NAME[/FLAVOR]: `assert report.ok, report`."""
    candidate = find_environment(name, overrides=overrides, config_paths=config_paths, search_dirs=search_dirs)
    return await check_candidate(candidate, options or SuiteOptions())


async def check_candidate(candidate: Candidate, options: SuiteOptions) -> Report:
    """Run the conformance suite on an environment that was found."""
    claim = "the configuration and every server's settings are valid"
    problems = _problems(candidate)
    if problems:
        found = tuple(
            Finding(p.what, p.where or candidate.name, p.next or "correct the configuration") for p in problems
        )
        return Report(candidate.name, candidate.instance.name, [Result("config", claim, found)])
    with _quiet_logs() as log_dir:
        async with opened(candidate, log_dir) as subject:
            results = await run_suite(subject, options, candidate.findings)
    return Report(candidate.name, candidate.instance.name, [Result("config", claim), *results])


async def play_case(candidate: Candidate, case_name: str) -> Outcome:
    """Play one verifier case of an environment."""
    case = next((case for case in candidate.cases if case.name == case_name), None)
    if case is None:
        known = [case.name for case in candidate.cases]
        raise NotFoundError(f"there is no case '{case_name}'", where=candidate.cases_at, next=suggest(case_name, known))
    async with opened(candidate, None) as subject:
        return await play(subject, case.request)


def find_environment(
    name: str,
    *,
    overrides: Sequence[str] = (),
    config_paths: Sequence[str] = (),
    search_dirs: Sequence[Path] = (),
) -> Candidate:
    """The environment of that name: its config, with data/check.yaml on top, its rows and cases."""
    environ = read_environ()
    config = _load(environ, name, overrides, config_paths, search_dirs)
    folder, _, flavor = name.partition("/")
    found = config.roots.require(config_path("resources_servers", name), "the environment's config")
    data = found.parents[1] / "data"
    extra = _flavored(data, flavor, "check.yaml")
    if extra.exists():
        config = _load(environ, name, overrides, [*config_paths, str(extra)], search_dirs)
    instance = _instance(config, folder, name)
    if not data.exists() and instance.directory is not None:  # a config under another name
        data, flavor = instance.directory / "data", flavor or folder
    cases_file = _flavored(data, flavor, "verifier_cases.jsonl")
    cases_at = config.roots.shown(cases_file)
    lines = cases_file.read_bytes().split(b"\n") if cases_file.exists() else ()
    cases, findings = parse_cases(lines, cases_at)
    rows_file = _rows_file(config, instance, data / "example.jsonl")
    rows, bad_rows = _rows(rows_file, config.roots.shown(rows_file))
    return Candidate(
        name, config, environ, instance, rows, config.roots.shown(rows_file), cases, cases_at, findings + bad_rows
    )


@asynccontextmanager
async def opened(candidate: Candidate, log_dir: Path | None) -> AsyncIterator[Subject]:
    """The environment live, and with it only the instances that it uses."""
    instance = candidate.instance
    form, stateful, task_type, ours = _traits(instance)
    async with _calls(candidate, log_dir, {}) as calls:
        yield Subject(
            instance=instance.name,
            calls=calls,
            form=form or await _probed_form(calls, instance.name),
            stateful=stateful,
            task_type=task_type,
            reopened=partial(_reopened, candidate, log_dir) if ours else None,
            rows=candidate.rows,
            rows_at=candidate.rows_at,
            cases=candidate.cases,
            cases_at=candidate.cases_at,
            agents=frozenset(found.name for found in _agents(candidate.config, instance)),
        )


def _reopened(candidate: Candidate, log_dir: Path | None, ttl_s: float) -> AbstractAsyncContextManager[Calls]:
    return _calls(candidate, log_dir, {"session_ttl_s": ttl_s})


@asynccontextmanager
async def _calls(candidate: Candidate, log_dir: Path | None, more: Mapping[str, Any]) -> AsyncIterator[Calls]:
    instance = replace(candidate.instance, settings={**candidate.instance.settings, **more})
    instances = [instance, *_used_by(candidate.instance, candidate.config.instances)]
    async with Cell(instances, options_from(candidate.config, candidate.environ, log_dir=log_dir)) as cell:
        yield cell.calls


def _used_by(instance: Instance, known: Mapping[str, Instance]) -> list[Instance]:
    """The instances that an instance refers to, and those that they refer to."""
    found: dict[str, Instance] = {}
    waiting = [ref.name for ref in instance.refs.values()]
    while waiting:
        name = waiting.pop()
        if name in known and name not in found and name != instance.name:
            found[name] = known[name]
            waiting += [ref.name for ref in known[name].refs.values()]
    return list(found.values())


def _traits(instance: Instance) -> tuple[Literal["verify", "step"] | None, bool, type[Task] | None, bool]:
    """Form, whether it keeps sessions, its task, and whether its sessions are the kit's."""
    try:
        entry = load_entry(instance)
    except UserError:  # its packages are not here, so its class cannot be looked at
        return None, True, None, False
    if not is_server_class(entry):
        return None, True, None, False
    if issubclass(entry, StepEnvironment):
        return "step", True, entry.task_type, True
    if issubclass(entry, Environment):
        stateful = entry.open is not Environment.open
        return "verify", stateful, entry.task_type, stateful and not entry.scores_without_session
    return None, True, None, False


async def _probed_form(calls: Calls, instance: str) -> Literal["verify", "step"]:
    return "verify" if (await calls.call(instance, "/reset", {})).status == 404 else "step"


def _problems(candidate: Candidate) -> list[Problem]:
    problems = list(candidate.config.problems)
    if candidate.config.strict_settings:
        problems += [found for instance in candidate.config.instances.values() for found in check_settings(instance)]
    return problems


def _load(
    environ: Environ, name: str, overrides: Sequence[str], config_paths: Sequence[str], search_dirs: Sequence[Path]
) -> Config:
    first = config_path("resources_servers", name)
    return compose(
        environ, overrides=overrides, config_paths=[first, *config_paths], search_dirs=search_dirs, stub_policy=True
    )


def _instance(config: Config, folder: str, name: str) -> Instance:
    found = [one for one in config.instances.values() if one.kind == "resources_servers"]
    own = [one for one in found if one.implementation == folder]
    if own or len(found) == 1:
        return (own or found)[0]
    if config.problems:
        raise ConfigError(config.problems)
    raise UserError(
        f"the config of '{name}' has no resources server '{folder}'",
        where=config_path("resources_servers", name),
        next=f"name the implementation after its folder: resources_servers: {{{folder}: …}}",
    )


def _agents(config: Config, instance: Instance) -> list[Instance]:
    agents = [config.instances[name] for name in config.agents]
    return [agent for agent in agents if any(ref.name == instance.name for ref in agent.refs.values())]


def _rows_file(config: Config, instance: Instance, default: Path) -> Path:
    """The example dataset that the config names, or the folder's data/example.jsonl."""
    for agent in [*_agents(config, instance), instance]:
        for dataset in agent.datasets:
            if dataset.get("type") == "example":
                found = config.roots.find(str(dataset.get("jsonl_fpath")))
                return found if found is not None else Path(str(dataset.get("jsonl_fpath")))
    return default


def _flavored(data: Path, flavor: str, name: str) -> Path:
    """`FLAVOR_name` where a flavor has its own, else `name`."""
    own = data / f"{flavor}_{name}"
    return own if flavor and own.exists() else data / name


def _rows(path: Path, shown: str) -> tuple[list[Any], list[Finding]]:
    if not path.exists():
        return [], []
    rows, findings = list[Any](), list[Finding]()
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            rows += [orjson.loads(line)] if line.strip() else []
        except orjson.JSONDecodeError as error:
            findings.append(Finding(f"this is no JSON: {error}", f"{shown} line {number}", "correct the line"))
    return rows, findings


@contextmanager
def _quiet_logs() -> Iterator[Path]:
    """A place for what instances log while they are given nonsense on purpose."""
    with tempfile.TemporaryDirectory(prefix="gymnast-check-") as folder:
        yield Path(folder)
