"""`gym list` and `gym search`: what can be named, one component in detail, and the configs that names stand for."""

from __future__ import annotations

import difflib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gymnast.cli.options import print_json, say
from gymnast.compat.ng_arguments import FieldError, Fields, NgArguments
from gymnast.compat.ng_components import KINDS, Component, find_components
from gymnast.errors import NotFoundError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gymnast.config import Config
    from gymnast.config.roots import Roots

_SIMILAR: Final = 0.7
"""How alike a word must be to what is searched for, from 0 to 1."""
_FILTERS: Final = ("domain", "kind", "modality", "licensing", "status", "lifecycle")


def find_config(roots: Roots, kind: str, name: str) -> str:
    """Find the config file of NAME or NAME/FLAVOR; a resources server also counts as an environment."""
    stem, _, flavor = name.removeprefix("resources_servers/").partition("/")
    folder = KINDS[kind]
    nested = f"configs/{flavor or stem}.yaml"
    paths = [f"{folder}/{stem}/{flavor or 'config'}.yaml" if folder == kind else f"{folder}/{stem}/{nested}"]
    if folder == kind and flavor:
        paths.insert(0, f"{folder}/{name}/config.yaml")
    if kind == "environments":
        paths.append(f"resources_servers/{stem}/{nested}")
    for path in paths:
        if roots.find(path) is not None:
            return path
    known = [component.name for component in find_components(roots, kind)]
    raise NotFoundError(
        f"unknown {kind.removesuffix('s').replace('-', ' ')} '{name}'",
        where=roots.describe_search(paths[0]),
        next=suggest(name, known),
    )


def find_workload_config(roots: Roots, name: str, kind: str | None) -> str:
    """Find the config of an environment or benchmark; a name that both have needs the kind.

    A benchmark's own server often has its name: that does not make it an environment, too.
    """
    configs = []
    for each in ("environment", "benchmark") if kind is None else (kind,):
        with suppress(NotFoundError):
            configs.append(find_config(roots, f"{each}s", name))
    named = [path for path in configs if not path.startswith("resources_servers/")]
    if len(named) == 1:
        return named[0]
    if len(configs) > 1:
        raise FieldError(f"'{name}' is an environment and a benchmark", next="add --kind environment or benchmark")
    return configs[0] if configs else find_config(roots, f"{kind or 'environment'}s", name)


def show(arguments: NgArguments) -> int:
    """`gym list KIND [NAME]` and `gym search [KIND] QUERY`."""
    config = arguments.config(stub_policy=True)
    kind = str(arguments.values.get("kind") or "environments")
    name, query = (Fields(config).optional(key) for key in ("component_name", "query"))
    components = find_components(config.roots, kind)
    if name is not None:
        return _inspect(config, kind, name, [each for each in components if _has_kind(each, arguments.values)])
    if query is not None:
        components = [component for component in components if _mentions(component, query.lower())]
    return _print(config, _filter(components, arguments.values))


def list_benchmarks(arguments: NgArguments) -> int:
    """`ng_list_benchmarks`."""
    config = arguments.config(stub_policy=True)
    return _print(config, find_components(config.roots, "benchmarks"))


def _inspect(config: Config, kind: str, name: str, components: list[Component]) -> int:
    """Show one component; a name that is an environment and a benchmark is shown as the environment."""
    component = next((each for each in reversed(components) if each.name == name), None)
    if component is None:
        known = [each.name for each in components]
        workloads = find_components(config.roots, "environments") if kind in {"benchmarks", "environments"} else []
        other = next((each for each in workloads if each.name == name), None)
        hint = f"it is a {other.noun}: gym list environments {name}" if other else suggest(name, known)
        raise NotFoundError(f"no '{name}' among the {kind}", next=hint)
    if Fields(config).flag("json"):
        print_json(_inspection(component))
        return 0
    print(f"{name}  ({component.noun}{f', {component.domain}' if component.domain else ''})")
    if component.description:
        print(component.description)
    for label, text in component.details.items():
        print(f"  {label}: {text}")
    if component.usage:
        print(f"  use it: {component.usage}")
    return 0


def _inspection(component: Component) -> dict[str, Any]:
    """A component in detail, with NeMo Gym's keys; what it is good for is the last line of its description."""
    details = dict(component.details)
    value = details.pop("value", None)
    lines = [component.description, f"Value: {value}" if value else None]
    return {
        "name": component.name,
        "type": component.noun,
        "domain": component.domain,
        "description": "\n".join(filter(None, lines)) or None,
        "details": details,
        "usage_example": component.usage,
    }


def _print(config: Config, matches: list[Component]) -> int:
    if Fields(config).flag("json"):
        print_json([{"name": each.name, **each.entry, "path": config.roots.relative(each.path)} for each in matches])
        return 0
    if not matches:
        say(f"none found; {config.roots.describe_search('benchmarks')} (NEMO_GYM_EXTRA_ROOTS adds folders)")
    width = max((len(component.name) for component in matches), default=0)
    for component in matches:
        text = component.description or config.roots.relative(component.path)
        print(f"{component.name:<{width}}  {component.domain or '':<21}  {text}".rstrip())
    return 0


def _filter(components: list[Component], values: Mapping[str, Any]) -> list[Component]:
    """The components with these values; how many do not have such a value at all is printed."""
    filters = values.get("filter", {})
    for key in _FILTERS:
        wanted = filters.get(key)
        if wanted is None:
            continue
        without = sum(component.entry.get(key) is None for component in components)
        if without:
            say(f"not listed because they have no {key}: {without}")
        components = [component for component in components if component.entry.get(key) == wanted]
    return components


def _has_kind(component: Component, values: Mapping[str, Any]) -> bool:
    return values.get("filter", {}).get("kind") in {None, component.entry.get("kind")}


def _mentions(component: Component, query: str) -> bool:
    """Whether a text of a component contains the query, or has a word like it."""
    texts = (component.name, component.domain, component.description, *component.search_words)
    for text in (text.lower() for text in texts if text):
        words = text.replace("_", " ").replace("-", " ").split()
        if query in text or difflib.get_close_matches(query, [text, *words], n=1, cutoff=_SIMILAR):
            return True
    return False
