"""What there is: benchmarks, environments, servers of each kind, by their folders in a checkout and in the hub."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from gymnast.cli.options import print_json, say
from gymnast.compat.ng_asked import Asked, Fields
from gymnast.errors import NotFoundError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.config import Config
    from gymnast.config.roots import Roots

KINDS: Final = {
    "benchmarks": ("benchmarks", "*/config.yaml"),
    "environments": ("environments", "*/config.yaml"),
    "resources-servers": ("resources_servers", "*/configs/*.yaml"),
    "agents": ("responses_api_agents", "*/app.py"),
    "models": ("responses_api_models", "*/configs/*.yaml"),
}
"""Where each kind of component lives, and what makes a folder one."""


@dataclass(frozen=True, slots=True)
class Component:
    """Something that can be named on the command line."""

    kind: str
    name: str
    path: str
    domain: str | None = None
    description: str | None = None


def components(roots: Roots, kind: str) -> list[Component]:
    """Those of a kind, by name; the first root that has one wins, as everywhere."""
    found: dict[str, Component] = {}
    for root in roots:
        for path in sorted((root / KINDS[kind][0]).glob(KINDS[kind][1])):
            name = _name(path)
            if name not in found:
                found[name] = Component(kind, name, roots.shown(path), *_described(path))
    return [found[name] for name in sorted(found)]


def config_of(roots: Roots, kind: str, name: str) -> str:
    """The config file that NAME or NAME/FLAVOR means: also an environment that is only a resources server here."""
    folder, _, flavor = name.partition("/")
    home = KINDS[kind][0]
    nested = f"configs/{flavor or folder}.yaml"
    places = [f"{home}/{folder}/{flavor or 'config'}.yaml" if home == kind else f"{home}/{folder}/{nested}"]
    if kind == "environments":
        places.append(f"resources_servers/{folder}/{nested}")
    for place in places:
        if roots.find(place) is not None:
            return place
    known = [one.name for one in components(roots, kind)]
    raise NotFoundError(
        f"there is no {kind.removesuffix('s').replace('-', ' ')} '{name}'",
        where=roots.searched(places[0]),
        next=suggest(name, known),
    )


def show(asked: Asked) -> int:
    """`gym list KIND [NAME]` and `gym search [KIND] QUERY`."""
    config = asked.config(stub_policy=True)
    kind, name, query = (asked.values.get(key) for key in ("kind", "component_name", "query"))
    kinds = [str(kind)] if kind else list(KINDS)
    found = [one for each in kinds for one in components(config.roots, each)]
    if name is not None:
        found = [one for one in found if one.name in {name, f"{name}/{name}"} or one.name.startswith(f"{name}/")]
        if not found:
            known = [one.name for each in kinds for one in components(config.roots, each)]
            raise NotFoundError(f"there is no '{name}' among the {kinds[0]}", next=suggest(str(name), known))
    if query is not None:
        found = [one for one in found if _mentions(one, str(query).lower())]
    found = [one for one in found if _fits(config.roots, one, asked.values)]
    return _print(config, found, with_kind=len(kinds) > 1)


def list_benchmarks(asked: Asked) -> int:
    """`ng_list_benchmarks`."""
    config = asked.config(stub_policy=True)
    return _print(config, components(config.roots, "benchmarks"), with_kind=False)


def _print(config: Config, found: list[Component], *, with_kind: bool) -> int:
    if Fields(config).flag("json"):
        print_json([asdict(one) for one in found])
        return 0
    if not found:
        say(f"nothing is there; {config.roots.searched('benchmarks')} (NEMO_GYM_EXTRA_ROOTS adds folders)")
    for one in found:
        kind = f"{one.kind:<18} " if with_kind else ""
        print(f"{kind}{one.name:<44} {one.domain or '':<22} {one.path}".rstrip())
    return 0


def _fits(roots: Roots, one: Component, wanted: Mapping[str, Any]) -> bool:
    """Whether a component is what was asked for: by the domain of its config, and by its manifest."""
    if wanted.get("domain") not in {None, one.domain}:
        return False
    if "status" not in wanted and "manifest" not in wanted:
        return True
    said = _manifest(roots, one)
    if wanted.get("status") == "no-manifest":
        return said is None
    return all((said or {}).get(key) == value for key, value in wanted["manifest"].items())


def _manifest(roots: Roots, one: Component) -> dict[str, Any] | None:
    """What an environment's `manifest.yaml` says; None where it has none."""
    from gymnast.config.tree import plain
    from gymnast.config.yaml_source import read_yaml

    path = roots.find(f"{KINDS[one.kind][0]}/{one.name.partition('/')[0]}/manifest.yaml")
    found = plain(read_yaml(path, shown=str(path))) if path is not None else None
    return found if isinstance(found, dict) else None


def _mentions(one: Component, text: str) -> bool:
    return any(text in (value or "").lower() for value in (one.name, one.domain, one.description))


def _name(path: Path) -> str:
    """`mcqa`, or `math_with_judge/dapo17k` for a flavor."""
    if path.parent.name != "configs":
        return path.parent.name
    folder = path.parent.parent.name
    return folder if path.stem == folder else f"{folder}/{path.stem}"


def _described(path: Path) -> tuple[str | None, str | None]:
    """Domain and description, as the first resources server of a config says them."""
    if path.suffix != ".yaml":
        return None, None
    from gymnast.config.tree import plain
    from gymnast.config.yaml_source import read_yaml
    from gymnast.errors import ConfigError

    try:
        blocks = list(_resources_servers(plain(read_yaml(path, shown=str(path)))))
    except ConfigError:  # listing is no place to complain: using it is
        return None, None
    texts = [(block.get("domain"), block.get("description")) for block in blocks]
    domain, description = next((one for one in texts if one[0]), (None, None))
    return domain, description if isinstance(description, str) else None


def _resources_servers(config: Any) -> Iterator[dict[str, Any]]:
    for block in config.values() if isinstance(config, dict) else ():
        servers = block.get("resources_servers") if isinstance(block, dict) else None
        for one in servers.values() if isinstance(servers, dict) else ():
            if isinstance(one, dict):
                yield one
