"""Servers: serving, health, tests, packages, and creating a new one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.cli.options import print_json, say
from gymnast.compat.ng_arguments import FieldError, Fields, NgArguments
from gymnast.compat.ng_init import PROFILE, init_workload
from gymnast.errors import NotFoundError, StartError, UserError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.config import Config
    from gymnast.config.roots import Roots
    from gymnast.runtime.remote import InstanceHealth, RemoteHead
    from gymnast.types.json import JsonObject

RESOURCES: Final = "resources_servers"
KINDS: Final = (RESOURCES, "responses_api_agents", "responses_api_models")
_STATUS_KEYS: Final = (
    *("config_path", "dir_path", "entrypoint", "host", "name", "pid", "port", "process_name", "server_type"),
    *("start_time", "status", "uptime_seconds", "url"),
)
_NO_TESTS: Final = 5  # pytest's exit code if there are none
_FORMATS: Final = ("columns", "freeze", "json")
_PACKAGES: Final = """
import importlib.metadata as metadata, json
versions = {}
for package in metadata.distributions():
    if package.metadata["Name"]:
        versions.setdefault(package.metadata["Name"], package.version)
print(json.dumps([{"name": name, "version": versions[name]} for name in sorted(versions, key=str.lower)]))
"""


def run(arguments: NgArguments) -> int:
    """Serve until interrupted."""
    from gymnast.cli import serve
    from gymnast.rollouts.tool_modes import offer_row_tools
    from gymnast.runtime.server_group import ServeOptions

    config = offer_row_tools(arguments.config().require_valid())
    log_dir = Fields(config).optional("nemo_gym_log_dir")
    options = ServeOptions(log_dir=Path(log_dir) if log_dir else None)
    return serve.run(config, options, as_json=Fields(config).flag("json"))


def status(arguments: NgArguments) -> int:
    """Print the table and a line `N healthy, M unhealthy`, or a list with NeMo Gym's keys as JSON.

    That nothing runs is not an error, as there.
    """
    from gymnast.cli import status as health
    from gymnast.config import read_environ
    from gymnast.runtime.find_head import find_heads

    config = arguments.config(stub_policy=True)
    as_json = Fields(config).flag("json")
    try:
        addresses = find_heads(None, config, read_environ())
    except NotFoundError as error:
        say(str(error))
        if as_json:
            print_json([])
        return 0
    if not as_json:
        return health.run(None, config, as_json=False)
    heads = asyncio.run(health.read_health(addresses))
    instances = [(instance, entry) for head, entries in heads for instance, entry in _with_health(head, entries)]
    print_json([_status_entry(instance, entry.status) for instance, entry in instances])
    return 0 if all(entry.healthy for _, entry in instances) else 1


def _with_health(head: RemoteHead, entries: list[InstanceHealth]) -> Iterator[tuple[JsonObject, InstanceHealth]]:
    health = {entry.name: entry for entry in entries}
    return ((each, health[str(each["process_name"])]) for each in head.instances if each["process_name"] in health)


def _status_entry(instance: JsonObject, status: str) -> JsonObject:
    """An instance with NeMo Gym's keys."""
    started = instance.get("start_time")
    uptime = time.time() - started if isinstance(started, int | float) else None
    return {key: instance.get(key) for key in _STATUS_KEYS} | {"status": status, "uptime_seconds": uptime}


def prefetch(arguments: NgArguments) -> int:
    """`gym env prefetch`: install the packages that the configured servers require; start nothing."""
    from gymnast.compat.server_tests import python_for

    config = arguments.config(stub_policy=True).require_valid()
    if not arguments.names_configs:
        raise UserError("no servers are configured", next="name their configs: --config, --resources-server")
    folders = {instance.directory for instance in config.instances.values() if instance.directory is not None}
    for folder in sorted(folders):
        print(f"{config.roots.relative(folder)}  {python_for(folder)}")
    return 0


def test(arguments: NgArguments) -> int:
    """Run the tests in a server's folder with pytest and the packages that the server requires."""
    from gymnast.compat.server_tests import run_tests

    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    folder = _folder(config, fields.text("entrypoint"))
    code = run_tests(folder)
    return code or _validate_data(folder, enabled=fields.flag("should_validate_data"))


def test_all(arguments: NgArguments) -> int:
    """Run the tests of every server in the checkout, one after the other."""
    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    shards = fields.positive("num_shards") or 1
    folders = server_folders(config.roots)[fields.index("shard_index", shards) :: shards]
    if not folders:
        raise NotFoundError(
            "no servers found", where=str(config.roots.cwd), next="run this in a checkout, or pass it as --search-dir"
        )
    validate = fields.flag("should_validate_data")
    results = {folder: _test_folder(folder, validate=validate) for folder in folders}
    for folder, result in results.items():
        print(f"{result:<8} {config.roots.relative(folder)}")
    untested = sum(result == "no tests" for result in results.values())
    if untested and fields.flag("fail_on_total_and_test_mismatch"):
        say(f"{untested} servers have no tests")
        return 1
    return 1 if "failed" in results.values() else 0


def _test_folder(folder: Path, *, validate: bool) -> str:
    from gymnast.compat.server_tests import run_tests

    if _validate_data(folder, enabled=validate and folder.parent.name == RESOURCES):
        return "failed"
    try:
        code = run_tests(folder) if (folder / "tests").is_dir() else _NO_TESTS
    except StartError as error:  # its packages cannot be installed; test the other servers anyway
        say(str(error))
        return "failed"
    return "no tests" if code == _NO_TESTS else "failed" if code else "passed"


def _validate_data(folder: Path, *, enabled: bool) -> int:
    from gymnast.compat.server_tests import data_problems

    problems = data_problems(folder) if enabled else []
    for problem in problems:
        say(f"problem: {problem}")
    return 1 if problems else 0


def env_test(arguments: NgArguments) -> int:
    """`gym env test`: run the verifier cases of an environment, the tests of one server, or of all."""
    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    name, entrypoint = fields.optional("onboarding_name"), fields.optional("entrypoint")
    if name is None:
        if config.values.get("catalog_kind") or fields.flag("json") or fields.flag("update_expected"):
            raise FieldError("--kind, --update-expected and --json need the name of an environment or benchmark")
        return test(arguments) if entrypoint else test_all(arguments)
    if entrypoint:
        raise FieldError("NAME and --resources-server are mutually exclusive")
    from gymnast.compat.ng_publish import test_workload

    return test_workload(arguments)


def dev_test(arguments: NgArguments) -> int:
    """Run the tests of the project in this folder with pytest, with coverage if pytest-cov is installed."""
    from importlib.util import find_spec

    from gymnast.compat.server_tests import SURFACE_PLUGIN

    arguments.config(stub_policy=True)
    if not Path("tests").is_dir():
        raise NotFoundError("no folder `tests` here", where=str(Path.cwd()), next="run this in the project's root")
    coverage = ["--cov"] if find_spec("pytest_cov") else []
    words = [sys.executable, "-P", "-m", "pytest", "-p", SURFACE_PLUGIN, "tests", *coverage]
    return subprocess.run(words, check=False).returncode  # noqa: S603 - our own command


def reinstall(arguments: NgArguments) -> int:
    """Reinstall the project in this folder with its development dependencies."""
    import shutil

    arguments.config(stub_policy=True)
    if not Path("pyproject.toml").is_file():
        raise NotFoundError("no pyproject.toml here", where=str(Path.cwd()), next="run this in the checkout's root")
    uv = shutil.which("uv")
    words = [uv, "sync", "--extra", "dev"] if uv else [sys.executable, "-m", "pip", "install", "--editable", ".[dev]"]
    return subprocess.run(words, check=False).returncode  # noqa: S603 - our own command


def pip_list(arguments: NgArguments) -> int:
    """List the packages of a server: ours, or those of its own virtual environment if it needs one."""
    from gymnast.compat.server_tests import python_for

    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    entrypoint = fields.optional("entrypoint")
    form = fields.one_of("format", _FORMATS) if fields.optional("format") else "columns"
    as_json = fields.flag("json") or form == "json"
    python = python_for(_folder(config, entrypoint)) if entrypoint else sys.executable
    if fields.flag("outdated"):
        words = [sys.executable, "-m", "pip", "--python", python, "list", "--outdated"]
        words += ["--format", "json" if as_json else form, "--disable-pip-version-check"]
        return subprocess.run(words, check=False).returncode  # noqa: S603 - our own command
    process = subprocess.run([python, "-c", _PACKAGES], check=False, capture_output=True, text=True)  # noqa: S603 - ours
    if process.returncode:
        raise UserError(f"cannot list the packages: {process.stderr.strip()}", where=python)
    import orjson

    packages = orjson.loads(process.stdout)
    if as_json:
        print_json(packages)
        return 0
    for package in packages:
        name, version = package["name"], package["version"]
        print(f"{name}=={version}" if form == "freeze" else f"{name:<40} {version}")
    return 0


def init_resources_server(arguments: NgArguments) -> int:
    """Create a working environment."""
    from gymnast.authoring.scaffold import KINDS as FORMS
    from gymnast.cli import env

    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    workload = _named_workload(config)
    if workload is not None:
        return init_workload(config, *workload)
    for name in ("profile", "reuse_verifier", "reward_range", "higher_is_better"):
        if config.values.get(name) is not None:
            raise FieldError(f"{name} needs --environment NAME or --benchmark NAME")
    kind, _, name = fields.text("entrypoint").strip("/").rpartition("/")
    if kind not in {RESOURCES, ""}:
        raise FieldError(f"can only create {RESOURCES}, not {kind}", next=f"+entrypoint={RESOURCES}/{name}")
    form = fields.one_of("kind", FORMS) if fields.optional("kind") else "single-turn"
    return env.new(name, kind=form, folder=Path())


def _named_workload(config: Config) -> tuple[str, str] | None:
    """Kind and name of the environment or benchmark to create, if it is one."""
    fields = Fields(config)
    kinds = ("environment", "benchmark")
    named = [(kind, name) for kind in kinds if (name := fields.optional(f"scaffold_{kind}"))]
    if config.values.get("scaffold_kind"):
        named.append((fields.one_of("scaffold_kind", kinds), fields.text("scaffold_name")))
    if not named:
        return None
    if fields.optional("entrypoint"):
        raise FieldError("create a resources server, an environment or a benchmark, not several")
    if config.values.get("profile"):
        fields.one_of("profile", (PROFILE,))
    return named[0]


def server_folders(roots: Roots) -> list[Path]:
    """The servers of a checkout: those in the folders that are searched before the built-ins."""
    return [
        path.parent
        for root in dict.fromkeys((*roots.extra, roots.cwd))
        for kind in KINDS
        for path in sorted((root / kind).glob("*/app.py"))
    ]


def _folder(config: Config, entrypoint: str) -> Path:
    """The folder of a server, or an error that names similar ones."""
    path = config.roots.find(entrypoint)
    if path is not None:
        return path
    known = [config.roots.relative(folder) for folder in server_folders(config.roots)]
    namesakes = [folder for folder in known if Path(folder).name == entrypoint.strip("/")]
    hint = f"did you mean '{namesakes[0]}'?" if namesakes else suggest(entrypoint, known)
    where = config.roots.describe_search(entrypoint)
    raise NotFoundError(f"entrypoint '{entrypoint}' does not exist", where=where, next=hint)
