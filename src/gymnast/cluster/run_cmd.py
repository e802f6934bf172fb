"""A shell command as a job, under the name and with the options that pipelines know it by: mostly to fetch data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.cluster.component_jobs import JobWanted, Queued, scripts, site_for, submitted
from gymnast.cluster.components.spec import Component
from gymnast.cluster.pipeline_jobs import container_of
from gymnast.cluster.pipeline_options import place_of
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.cluster.pipeline_options import Arguments
    from gymnast.cluster.site import Site


def run_cmd(
    ctx: Arguments | None = None,
    cluster: str | None = None,
    command: str = "",
    *,
    container: str | None = None,
    expname: str = "script",
    partition: str | None = None,
    account: str | None = None,
    qos: str | None = None,
    time: str | None = None,
    time_min: str | None = None,
    num_gpus: int | None = None,
    num_nodes: int = 1,
    exclusive: bool | None = None,
    run_after: str | Sequence[str] | None = None,
    sbatch_kwargs: str | dict[str, Any] | None = None,
    mount_paths: str | Sequence[str] | None = None,
    config_dir: str | None = None,
    log_dir: str | None = None,
    installation_command: str | None = None,
    dry_run: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> Queued:
    """Run a shell command as a job, e.g. to fetch data before rollouts that `run_after` it.

    Without `cluster` it runs here, without a container, and the call returns when it has ended.
    """
    text = " ".join([command, *(word for word in (ctx.args if ctx else ()) if word)]).strip()
    if not text:
        raise UserError("run_cmd needs a command")
    place = place_of(
        cluster=cluster,
        expname=expname,
        run_after=run_after,
        container=container,
        mount_paths=mount_paths,
        config_dir=config_dir,
        log_dir=log_dir,
        installation_command=installation_command,
        dry_run=dry_run,
        time_min=time_min,
        sbatch_kwargs=sbatch_kwargs,
        partition=partition,
        account=account,
        qos=qos,
        time=time,
        exclusive=exclusive,
    )
    site = _with_gpus(site_for(place), num_gpus)
    component = Component(
        "command",
        ("bash", "-c", text),
        nodes=num_nodes,
        gpus_per_task=num_gpus or 0,
        container=container_of(site, container or site.container, place.mounts),
        is_main=True,
    )
    folder = place.log_dir or Path.cwd() / "gymnast_jobs"
    reaches = (Path.cwd(),)
    job = JobWanted(expname, folder, (component,), place, after=place.run_after, in_order=True, reaches=reaches)
    if dry_run:
        return Queued(str(folder), said="".join(scripts(job, site)))
    return submitted(job, site, on_note or (lambda _: None))


def _with_gpus(site: Site, number: int | None) -> Site:
    """The site with so many GPUs for a job on each node, whatever it gives others; 0 is none."""
    if number is None:
        return site
    resources = msgspec.structs.replace(site.resources, gpus_per_node=number or None, gres=None)
    return msgspec.structs.replace(site, resources=resources)
