"""The components of one seed's job: policy server, sandbox, collection. Pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.compat.nemo_skills.seeds import Seed, seed_output
from gymnast.config.write_overrides import quote_override
from gymnast.sidecars.component import Component, Container, Mount
from gymnast.sidecars.policy_server import POLICY, make_server_component, parse_server_kind, served_model_name
from gymnast.sidecars.sandbox import SANDBOX_ENVIRONMENT, make_sandbox_component
from gymnast.sidecars.server_options import DUMMY_KEY, base_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gymnast.compat.nemo_skills.options import RolloutsRequest
    from gymnast.executors.site import Site

COLLECT: Final = "collect"
KEY_VARIABLE: Final = "GYMNAST_POLICY_API_KEY"
_DRAIN_S: Final = 300.0


def seed_components(request: RolloutsRequest, seed: Seed, site: Site, python: str) -> list[Component]:
    """The components of one seed's job."""
    services: list[Component] = []
    server = request.server
    if server.is_self_hosted:
        assert server.type is not None
        name = server.container or (parse_server_kind(server.type) if site.runtime != "none" else None)
        container = container_with_mounts(site, name, request.placement.mounts)
        services.append(make_server_component(server.to_spec(container, seed)))
    if request.sandbox is not None:
        name = request.sandbox.container if site.runtime != "none" else None
        container = container_with_mounts(site, name, request.placement.mounts)
        services.append(make_sandbox_component(request.sandbox, container, site.where))
    environment = {"NEMO_GYM_EXTRA_ROOTS": request.gym_path} if request.gym_path else {}
    if request.sandbox is not None:
        environment |= SANDBOX_ENVIRONMENT
    collect = Component(
        COLLECT,
        (python, "-P", "-m", "gymnast.compat", "ng_collect_rollouts", *_collect_fields(request, seed)),
        container=collect_container(request, site),
        environment=environment,
        needs=tuple(service.name for service in services),
        is_main=True,
        stop_s=_DRAIN_S,
    )
    return [*services, collect]


def container_with_mounts(site: Site, name: str | None, mounts: tuple[Mount, ...]) -> Container | None:
    """The site's container of that name with further mounts. None on this machine, where jobs run without."""
    container = site.get_container(name) if site.executor != "local" else None
    return replace(container, mounts=(*container.mounts, *mounts)) if container is not None else None


def collect_container(request: RolloutsRequest, site: Site) -> Container | None:
    placement = request.placement
    return container_with_mounts(site, placement.container or site.container, placement.mounts)


def to_host_paths(request: RolloutsRequest, site: Site) -> RolloutsRequest:
    """The request with paths of the host: calls may name paths inside the container (`/workspace/…`)."""
    placement, container = request.placement, collect_container(request, site)
    if container is None:
        return request
    logs = placement.log_dir and Path(container.host_path(str(placement.log_dir)) or placement.log_dir)
    output_dir = Path(container.host_path(str(request.output_dir)) or request.output_dir)
    return replace(request, output_dir=output_dir, placement=replace(placement, log_dir=logs))


def _collect_fields(request: RolloutsRequest, seed: Seed) -> Iterator[str]:
    """The overrides of a collection. The caller's come last and win."""
    yield f"+config_paths=[{','.join(map(quote_override, request.config_paths))}]"
    yield f"+input_jsonl_fpath={quote_override(request.input_file)}"
    yield f"+output_jsonl_fpath={quote_override(str(seed_output(request.output_dir, seed)))}"
    yield "+resume_from_cache=true"
    server = request.server
    if server.is_self_hosted:
        yield f"++policy_base_url={quote_override(f'{{addresses:{POLICY}}}')}"
    elif server.address is not None:
        yield f"++policy_base_url={quote_override(base_url(server.address))}"
    name = server.policy_model_name or (
        served_model_name(server.to_spec(None, None)) if server.is_self_hosted else server.model
    )
    if name is not None:
        yield f"++policy_model_name={quote_override(name)}"
    if server.policy_api_key != DUMMY_KEY:  # a real key is not written to scripts and files
        yield f"++policy_api_key=${{oc.env:{KEY_VARIABLE}}}"
    elif server.is_self_hosted or server.address is not None:
        yield f"++policy_api_key={DUMMY_KEY}"
    yield from request.serve_args
    yield from request.collect_args
