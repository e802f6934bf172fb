"""A shell command as a job, with the name and options that pipelines use: mostly to fetch data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gymnast.compat.nemo_skills.component_jobs import PipelineJob, QueuedJob, scripts, select_site, submit_job
from gymnast.compat.nemo_skills.options import Arguments, make_placement
from gymnast.compat.nemo_skills.seed_jobs import container_with_mounts
from gymnast.errors import UserError
from gymnast.sidecars.component import Component

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gymnast.executors.site import Site


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
) -> QueuedJob:
    """Run a shell command as a job, e.g. to fetch data before rollouts that `run_after` it.

    Without `cluster` it runs on this machine, without a container, and the call returns when it has ended.
    """
    options = dict(locals())
    text = " ".join([command, *(word for word in (ctx.args if ctx else ()) if word)]).strip()
    if not text:
        raise UserError("run_cmd needs a command")
    placement = make_placement(options)
    site = _with_gpus(select_site(placement), num_gpus)
    component = Component(
        "command",
        ("bash", "-c", text),
        nodes=num_nodes,
        gpus_per_task=num_gpus or 0,
        container=container_with_mounts(site, container or site.container, placement.mounts),
        is_main=True,
    )
    folder = placement.log_dir or Path.cwd() / "gymnast_jobs"
    shared, after = (Path.cwd(),), placement.run_after
    job = PipelineJob(expname, folder, (component,), placement, after, is_sequential=True, shared_folders=shared)
    if dry_run:
        return QueuedJob(str(folder), message="".join(scripts(job, site)))
    return submit_job(job, site, on_note or (lambda _: None))


def _with_gpus(site: Site, number: int | None) -> Site:
    """The site with this number of GPUs per node; 0 for none."""
    if number is None:
        return site
    resources = msgspec.structs.replace(site.resources, gpus_per_node=number or None, gres=None)
    return msgspec.structs.replace(site, resources=resources)
