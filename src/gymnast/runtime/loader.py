"""Loads an instance's code: imports its entry file, finds the server in it, checks its settings."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from gymnast.config.instances import COMMON_KEYS, SERVER_KINDS
from gymnast.config.roots import BUILTIN
from gymnast.errors import ConfigError, Problem, UserError, suggest
from gymnast.runtime.expected_packages import expected_packages, package_of
from gymnast.runtime.hosted_servers import HostableClass, find_hostable_class, is_hostable
from gymnast.runtime.surface_import import import_surface
from gymnast.runtime.venvs import unmet_requirements
from gymnast.wire.asgi import AsgiApp
from gymnast.wire.server import Server, ServerContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typing_extensions import TypeIs

    from gymnast.config import Instance


HOSTED_PACKAGE: Final = "gymnast_hosted"
"""The package in which entry files outside Gymnast are imported."""


class LoadError(UserError):
    """The entry file of an instance cannot be used."""


Entry = type[Server] | HostableClass | AsgiApp


def load_entry(instance: Instance) -> Entry:
    """The server class of the entry file, a class to host, or an ASGI application."""
    module = import_entry(instance)
    classes = [
        member
        for member in vars(module).values()
        if inspect.isclass(member)
        and issubclass(member, Server)
        and member.__module__ == module.__name__
        and not inspect.isabstract(member)
    ]
    if len(classes) == 1:
        return _check_kind(classes[0], instance)
    if len(classes) > 1:
        names = ", ".join(member.__name__ for member in classes)
        raise LoadError(
            f"the entry file defines several servers: {names}",
            where=_where(instance),
            next="keep only one of them there",
        )
    hosted = find_hostable_class(module)
    if hosted is not None:
        return hosted
    app = getattr(module, "app", None)
    if callable(app):
        return app  # type: ignore[no-any-return]
    raise LoadError("the entry file defines no server", where=_where(instance), next=_server_hint())


def is_server_class(entry: Entry) -> TypeIs[type[Server]]:
    """Whether it is a native server, not a hosted one or an ASGI application."""
    return inspect.isclass(entry) and issubclass(entry, Server)


def load_native(instance: Instance) -> type[Server] | None:
    """The class of an instance that is a native server, built with `gymnast.kit`."""
    try:
        entry = load_entry(instance)
    except UserError:
        return None
    return entry if is_server_class(entry) else None


def is_native(instance: Instance) -> bool:
    """Whether an instance is a native server, built with `gymnast.kit`."""
    return load_native(instance) is not None


def make_server(
    server_class: type[Server], instance: Instance, context: ServerContext, *, strict: bool = True
) -> Server:
    """Create the instance's server from its checked settings. Unless `strict`, undeclared settings are dropped."""
    problems: list[Problem] = []
    if not strict:
        known = settings_type(server_class).model_fields
        instance = replace(instance, settings={key: value for key, value in instance.settings.items() if key in known})
    settings = _settings(server_class, instance, problems)
    if problems:
        raise ConfigError(problems)
    try:
        build: Callable[..., Server] = server_class
        return build(instance.name, settings, context)
    except ValueError as error:
        raise ConfigError([Problem(str(error), where=_where(instance))]) from error


def check_settings(instance: Instance) -> list[Problem]:
    """The problems of an instance's settings. Starts nothing.

    None are known if the instance requires packages that are not installed: it runs in its own environment.
    """
    if instance.url is not None or instance.directory is None or unmet_requirements(instance.directory):
        return []
    try:
        entry = load_entry(instance)
    except UserError as error:
        return [Problem(error.what, where=error.where, next=error.next)]
    if is_hostable(entry):
        return entry.gymnast_problems(instance)
    if not is_server_class(entry):
        return []  # an ASGI application reads its own configuration
    problems: list[Problem] = []
    _settings(entry, instance, problems)
    return problems


def unset_settings(instance: Instance) -> dict[str, Any]:
    """The settings that an instance does not set, with their defaults."""
    try:
        entry = load_entry(instance) if instance.url is None and instance.directory is not None else None
    except UserError:
        return {}
    if entry is None or not is_server_class(entry):
        return {}
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in settings_type(entry).model_fields.items()
        if name not in instance.settings and not field.is_required()
    }


def settings_type(server_class: type[Server]) -> type[BaseModel]:
    """The settings model a server class declares (`settings: ItsSettings`)."""
    for owner in server_class.__mro__:
        declared = inspect.get_annotations(owner).get("settings")
        if declared is None:
            continue
        model: Any = vars(sys.modules[owner.__module__]).get(declared) if isinstance(declared, str) else declared
        if isinstance(model, type) and issubclass(model, BaseModel):
            return model
    raise LoadError(f"{server_class.__name__} does not declare `settings: <a Settings class of its module>`")


def _settings(server_class: type[Server], instance: Instance, problems: list[Problem]) -> BaseModel | None:
    model = settings_type(server_class)
    try:
        return model.model_validate(dict(instance.settings))
    except ValidationError as error:
        problems += [_settings_problem(detail, model, instance) for detail in error.errors(include_url=False)]
        return None


def _settings_problem(detail: Any, model: type[BaseModel], instance: Instance) -> Problem:
    path = ".".join(str(step) for step in detail["loc"])
    key = str(detail["loc"][0]) if detail["loc"] else ""
    where = f"{instance.name} ({instance.origins[key]})" if key in instance.origins else instance.name
    if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
        known = [*model.model_fields, *COMMON_KEYS]
        return Problem(f"unknown setting '{key}' of {instance.implementation}", where=where, next=suggest(key, known))
    if detail["type"] == "missing":
        return Problem(f"{instance.implementation} requires '{path}'", where=where)
    what = f"'{path}'" if path else instance.implementation  # a rule about several settings names none of them
    return Problem(f"{what}: {detail['msg'].removeprefix('Value error, ')}", where=where)


def _check_kind(server_class: type[Server], instance: Instance) -> type[Server]:
    if server_class.kind != instance.kind:
        text = f"{server_class.__name__} belongs to {server_class.kind}, not to {instance.kind} as configured"
        raise LoadError(text, where=_where(instance))
    return server_class


def import_entry(instance: Instance, *, alone: bool = False) -> ModuleType:
    """The module of an instance's entry file.

    If no other server runs in this process, it is `alone`: the modules of its folder stay imported and importable.
    """
    assert instance.directory is not None
    assert instance.entrypoint is not None
    path = instance.directory / instance.entrypoint
    try:
        if path.is_relative_to(BUILTIN):
            return importlib.import_module(
                ".".join(("gymnast.builtin", *path.relative_to(BUILTIN).with_suffix("").parts))
            )
        # There, a launcher starts servers in their folders: modules may read files relative to it.
        absolute = path.absolute()
        with contextlib.chdir(instance.directory):
            return _import_from(absolute, f"{HOSTED_PACKAGE}.{instance.kind}.{instance.implementation}", alone=alone)
    except Exception as error:
        text = f"importing the entry file raised {type(error).__name__}: {error}"
        raise LoadError(text, where=str(path), next=_import_hint(error)) from error


def _import_from(path: Path, package: str, *, alone: bool) -> ModuleType:
    """Import a file into its own package, with its directory on `sys.path` meanwhile, or for good."""
    name = f"{package}.{path.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    _ensure_package(package, path.parent)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        import_surface()
        checkout = path.parents[2] if path.parents[1].name in SERVER_KINDS else None
        with _importable(path.parent, checkout, alone=alone):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _ensure_package(name: str, folder: Path) -> None:
    """Create parent packages, so that `from . import sibling` works in the entry file."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        part = ".".join(parts[:depth])
        if part not in sys.modules:
            sys.modules[part] = ModuleType(part)
            sys.modules[part].__path__ = []
    if sys.modules[name].__path__ not in ([], [str(folder)]):  # an instance of the same name, from another directory
        for member in [member for member in sys.modules if member.startswith(f"{name}.")]:
            del sys.modules[member]
    sys.modules[name].__path__ = [str(folder)]


@contextlib.contextmanager
def _importable(folder: Path, checkout: Path | None, *, alone: bool) -> Iterator[None]:
    """Make `import sibling` work while the entry file is imported, and the checkout's root importable for good.

    Unless the server is `alone`, siblings are removed from `sys.modules` afterwards, so that another server's sibling
    of the same name is not confused with them.
    """
    if checkout is not None and str(checkout) not in sys.path:
        sys.path.append(str(checkout))
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if not alone:
            sys.path.remove(str(folder))
            _forget_siblings(folder, set(sys.modules) - before)


def _forget_siblings(folder: Path, imported: set[str]) -> None:
    """Remove a folder's modules and packages from `sys.modules`; a package with all that is in it."""
    siblings = {name for name in imported if "." not in name and _is_in(folder, sys.modules[name])}
    for name in imported:
        if name.partition(".")[0] in siblings:
            del sys.modules[name]


def _is_in(folder: Path, module: ModuleType) -> bool:
    """Whether the file of a module is in a folder, or the first one of a package without a file of its own."""
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    return file is not None and file.startswith(f"{folder}/")


def _server_hint() -> str:
    if "nemo_gym" in sys.modules and "gymnast.compat.nemo_gym" not in sys.modules:
        return (
            "NVIDIA's own `nemo_gym` is installed, whose servers only its launcher runs: use an environment with"
            " gymnast[nemo-gym] instead (docs/how-to/nemo-gym.md)"
        )
    return "subclass gymnast.kit.Environment, StepEnvironment, Agent or Model, or define an ASGI application `app`"


def _import_hint(error: Exception) -> str | None:
    name = (error.name or "") if isinstance(error, ImportError) else ""
    if isinstance(error, ModuleNotFoundError) and name == "nemo_gym":
        return "install the import surface: pip install 'gymnast[nemo-gym]' (docs/how-to/nemo-gym.md)"
    if isinstance(error, ModuleNotFoundError) and not name.startswith("nemo_gym"):
        return _install_hint(name.partition(".")[0])
    if not name.startswith("nemo_gym"):
        return None
    return "docs/how-to/nemo-gym.md lists the parts of `nemo_gym` that Gymnast provides"


def _install_hint(module: str) -> str:
    """How to get a package: those that servers may expect without listing them are named by the surface."""
    package = package_of(module)
    if package in expected_packages():
        return f"{sys.executable} -m pip install {package} (pip install 'gymnast[nemo-gym]' brings all of these)"
    return f"install the package that has '{module}', or list it in requirements.txt next to the entry file"


def _where(instance: Instance) -> str:
    return f"{instance.directory}/{instance.entrypoint} (instance '{instance.name}')"
