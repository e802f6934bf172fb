"""Servers: serving them, their health, their tests, their packages, and beginning one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.cli.options import print_json, say
from gymnast.compat.ng_asked import Asked, FieldError, Fields
from gymnast.errors import NotFoundError, StartError, UserError

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.config.roots import Roots

RESOURCES: Final = "resources_servers"
KINDS: Final = (RESOURCES, "responses_api_agents", "responses_api_models")
_NO_TESTS: Final = 5  # what pytest ends with if it finds none
_PACKAGES: Final = """
import importlib.metadata as metadata, json
found = {}
for one in metadata.distributions():
    if one.metadata["Name"]:
        found.setdefault(one.metadata["Name"], one.version)
print(json.dumps([{"name": name, "version": found[name]} for name in sorted(found, key=str.lower)]))
"""


def run(asked: Asked) -> int:
    """Serve until interrupted."""
    from gymnast.cli import serve
    from gymnast.runtime.serving import ServeOptions

    config = asked.config().checked()
    log_dir = Fields(config).optional("nemo_gym_log_dir")
    options = ServeOptions(log_dir=Path(log_dir) if log_dir else None)
    return serve.run(config, options, as_json=Fields(config).flag("json"))


def status(asked: Asked) -> int:
    """The table, and a line `N healthy, M unhealthy`."""
    from gymnast.cli import status as health

    config = asked.config(stub_policy=True)
    return health.run(None, config, as_json=Fields(config).flag("json"))


def prefetch(asked: Asked) -> int:
    """`gym env prefetch`: make the packages ready that the configured servers ask for; nothing is started."""
    from gymnast.compat.server_tests import python_for

    config = asked.config(stub_policy=True).checked()
    folders = {one.directory for one in config.instances.values() if one.directory is not None}
    for folder in sorted(folders):
        print(f"{config.roots.shown(folder)}  {python_for(folder)}")
    return 0


def test(asked: Asked) -> int:
    """The tests in a server's folder, by pytest, with the packages that the server asks for."""
    from gymnast.compat.server_tests import run_tests

    config = asked.config(stub_policy=True)
    fields = Fields(config)
    folder = _folder(config, fields.text("entrypoint"))
    code = run_tests(folder)
    return code or _checked_data(folder, asked_for=fields.flag("should_validate_data"))


def test_all(asked: Asked) -> int:
    """The tests of every server of the checkout, one after the other."""
    config = asked.config(stub_policy=True)
    fields = Fields(config)
    shards = fields.positive("num_shards") or 1
    folders = server_folders(config.roots)[fields.index("shard_index", shards) :: shards]
    if not folders:
        raise NotFoundError(
            "there are no servers here", where=str(config.roots.cwd), next="go to a checkout, or name it: --search-dir"
        )
    validates = fields.flag("should_validate_data")
    ended = {folder: _tested(folder, validates=validates) for folder in folders}
    for folder, how in ended.items():
        print(f"{how:<8} {config.roots.shown(folder)}")
    lacking = sum(how == "no tests" for how in ended.values())
    if lacking and fields.flag("fail_on_total_and_test_mismatch"):
        say(f"{lacking} servers have no tests")
        return 1
    return 1 if "failed" in ended.values() else 0


def _tested(folder: Path, *, validates: bool) -> str:
    from gymnast.compat.server_tests import run_tests

    if _checked_data(folder, asked_for=validates and folder.parent.name == RESOURCES):
        return "failed"
    try:
        code = run_tests(folder) if (folder / "tests").is_dir() else _NO_TESTS
    except StartError as error:  # its packages cannot be had: the other servers are tested all the same
        say(str(error))
        return "failed"
    return "no tests" if code == _NO_TESTS else "failed" if code else "passed"


def _checked_data(folder: Path, *, asked_for: bool) -> int:
    from gymnast.compat.server_tests import data_problems

    problems = data_problems(folder) if asked_for else []
    for problem in problems:
        say(f"problem: {problem}")
    return 1 if problems else 0


def env_test(asked: Asked) -> int:
    """`gym env test`: verifier cases of the named environment, the tests of one server, or those of all."""
    name = asked.values.get("component_name")
    if name is not None:
        from gymnast.cli import check

        return check.env(str(name), list(asked.words), search_dirs=list(asked.search_dirs))
    named = "entrypoint" in asked.values or any(word.lstrip("+").startswith("entrypoint=") for word in asked.words)
    return test(asked) if named else test_all(asked)


def dev_test(asked: Asked) -> int:
    """Tests of the project in this folder, by pytest; with coverage where pytest-cov is installed."""
    from importlib.util import find_spec

    asked.config(stub_policy=True)
    if not Path("tests").is_dir():
        raise NotFoundError("there is no folder of tests here", where=str(Path.cwd()), next="go to the project's root")
    coverage = ["--cov"] if find_spec("pytest_cov") else []
    words = [sys.executable, "-m", "pytest", "tests", *coverage]
    return subprocess.run(words, check=False).returncode  # noqa: S603 - our own words


def reinstall(asked: Asked) -> int:
    """Install the project in this folder again, with what its development needs."""
    import shutil

    asked.config(stub_policy=True)
    if not Path("pyproject.toml").is_file():
        raise NotFoundError("there is no project here", where=str(Path.cwd()), next="go to the checkout's root")
    uv = shutil.which("uv")
    words = [uv, "sync", "--extra", "dev"] if uv else [sys.executable, "-m", "pip", "install", "--editable", ".[dev]"]
    return subprocess.run(words, check=False).returncode  # noqa: S603 - our own words


def pip_list(asked: Asked) -> int:
    """The packages that a server has: its own where it asks for some that are not here, and all of ours."""
    from gymnast.compat.server_tests import python_for

    config = asked.config(stub_policy=True)
    fields = Fields(config)
    entrypoint, as_json = fields.optional("entrypoint"), fields.flag("json")
    python = python_for(_folder(config, entrypoint)) if entrypoint else sys.executable
    if fields.flag("outdated"):
        words = [sys.executable, "-m", "pip", "--python", python, "list", "--outdated"]
        words += ["--format", "json" if as_json else "columns", "--disable-pip-version-check"]
        return subprocess.run(words, check=False).returncode  # noqa: S603 - our own words
    done = subprocess.run([python, "-c", _PACKAGES], check=False, capture_output=True, text=True)  # noqa: S603 - ours
    if done.returncode:
        raise UserError(f"the packages cannot be listed: {done.stderr.strip()}", where=python)
    import orjson

    packages = orjson.loads(done.stdout)
    if as_json:
        print_json(packages)
        return 0
    for package in packages:
        print(f"{package['name']:<40} {package['version']}")
    return 0


def init_resources_server(asked: Asked) -> int:
    """A new environment that works as it is."""
    from gymnast.authoring.scaffold import KINDS as FORMS
    from gymnast.cli import env

    config = asked.config(stub_policy=True)
    fields = Fields(config)
    kind, _, name = fields.text("entrypoint").strip("/").rpartition("/")
    if kind not in {RESOURCES, ""}:
        raise FieldError(f"only {RESOURCES} can be begun, not {kind}", next=f"+entrypoint={RESOURCES}/{name}")
    form = fields.one_of("kind", FORMS) if fields.optional("kind") else "single-turn"
    return env.new(name, kind=form, folder=Path())


def server_folders(roots: Roots) -> list[Path]:
    """The servers of a checkout: those of the folders searched before the shipped ones."""
    return [
        path.parent
        for root in dict.fromkeys((*roots.extra, roots.cwd))
        for kind in KINDS
        for path in sorted((root / kind).glob("*/app.py"))
    ]


def _folder(config: Config, entrypoint: str) -> Path:
    return config.roots.require(entrypoint, "entrypoint")
