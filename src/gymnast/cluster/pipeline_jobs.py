"""The components of one seed's job: policy server, sandbox, collection. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.cluster.components.sandbox import ITS_ADDRESS, sandbox_component
from gymnast.cluster.components.servers import POLICY, kind_named, served_name, server_component
from gymnast.cluster.components.spec import Component
from gymnast.cluster.pipeline_options import DUMMY_KEY
from gymnast.cluster.seeds import seed_output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.cluster.components.spec import Container, Mount
    from gymnast.cluster.pipeline_options import RolloutsWanted
    from gymnast.cluster.seeds import Seed
    from gymnast.cluster.site import Site

COLLECT: Final = "collect"
KEY_VARIABLE: Final = "GYMNAST_POLICY_API_KEY"
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9/_.-]*")
_WORDS: Final = frozenset({"true", "false", "null", "nan", "inf"})
_BEFORE_QUOTE: Final = re.compile(r"(\\*)('|$)")
_DRAIN_S: Final = 300.0


def seed_components(wanted: RolloutsWanted, seed: Seed, site: Site, python: str) -> list[Component]:
    """What one seed's job consists of."""
    found: list[Component] = []
    server = wanted.server
    if server.is_self_hosted:
        assert server.type is not None
        name = server.container or (kind_named(server.type) if site.runtime != "none" else None)
        container = container_of(site, name, wanted.place.mounts)
        found.append(server_component(server.wanted(container, seed)))
    if wanted.sandbox is not None:
        name = wanted.sandbox.container if site.runtime != "none" else None
        own = container_of(site, name, wanted.place.mounts)
        found.append(sandbox_component(wanted.sandbox, own, site.where))
    container = container_of(site, wanted.place.container or site.container, wanted.place.mounts)
    needs = tuple(one.name for one in found)
    environment = {"NEMO_GYM_EXTRA_ROOTS": wanted.gym_path} if wanted.gym_path else {}
    if wanted.sandbox is not None:
        environment |= ITS_ADDRESS
    return [
        *found,
        Component(
            COLLECT,
            (python, "-m", "gymnast.compat", "ng_collect_rollouts", *_fields(wanted, seed)),
            container=container,
            environment=environment,
            needs=needs,
            is_main=True,
            stop_s=_DRAIN_S,
        ),
    ]


def container_of(site: Site, name: str | None, mounts: tuple[Mount, ...]) -> Container | None:
    """The site's container of that name with further mounts. On this machine, jobs run without containers."""
    container = site.container_named(name) if site.executor != "local" else None
    return replace(container, mounts=(*container.mounts, *mounts)) if container is not None else None


def on_the_host(wanted: RolloutsWanted, site: Site) -> RolloutsWanted:
    """The same with folders by their names outside: calls may name what containers see (`/workspace/…`)."""
    place = wanted.place
    container = container_of(site, place.container or site.container, place.mounts)
    if container is None:
        return wanted
    logs = place.log_dir and Path(container.outside(str(place.log_dir)) or place.log_dir)
    output_dir = Path(container.outside(str(wanted.output_dir)) or wanted.output_dir)
    return replace(wanted, output_dir=output_dir, place=replace(place, log_dir=logs))


def _fields(wanted: RolloutsWanted, seed: Seed) -> Iterator[str]:
    """The command fields of a collection; what the caller says comes last and wins."""
    yield f"+config_paths=[{','.join(map(quoted, wanted.config_paths))}]"
    yield f"+input_jsonl_fpath={quoted(wanted.input_file)}"
    yield f"+output_jsonl_fpath={quoted(str(seed_output(wanted.output_dir, seed)))}"
    yield "+resume_from_cache=true"
    server = wanted.server
    if server.is_self_hosted:
        yield f"++policy_base_url={quoted(f'{{addresses:{POLICY}}}')}"
    elif server.address is not None:
        yield f"++policy_base_url={quoted(base_url(server.address))}"
    name = server.policy_model_name or (
        served_name(server.wanted(None, None)) if server.is_self_hosted else server.model
    )
    if name is not None:
        yield f"++policy_model_name={quoted(name)}"
    if server.policy_api_key != DUMMY_KEY:  # a real key stays out of scripts and files
        yield f"++policy_api_key=${{oc.env:{KEY_VARIABLE}}}"
    elif server.is_self_hosted or server.address is not None:
        yield f"++policy_api_key={DUMMY_KEY}"
    yield from wanted.serve_args
    yield from wanted.collect_args


def base_url(address: str) -> str:
    """`host:port` and URLs without a path get what OpenAI-compatible servers have."""
    url = address if "://" in address else f"http://{address}"
    return url if "/" in url.split("://", 1)[1].rstrip("/") else f"{url.rstrip('/')}/v1"


def quoted(text: str) -> str:
    """A value in the grammar of overrides, whatever it contains."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    # A backslash means something only before a quote and at the end.
    return "'" + _BEFORE_QUOTE.sub(lambda match: 2 * match[1] + ("\\'" if match[2] else ""), text) + "'"
