"""What a worker works on, and as whom; and the configuration that it must find to be allowed to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.cluster.finder import Clock
from gymnast.cluster.identity import this_holder
from gymnast.config import compose
from gymnast.errors import DataError, UserError
from gymnast.rollouts.identity import instance_settings
from gymnast.rollouts.prepare import changes_since
from gymnast.rollouts.servers import reachable
from gymnast.runtime.unsandboxed import without_sandbox
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_look import read_chunk_plan
from gymnast.store.manifest import read_manifest

if TYPE_CHECKING:
    from gymnast.cluster.order import WorkOptions, WorkOrder
    from gymnast.config import Config, Environ, Instance
    from gymnast.store.chunk_files import ChunkPlan, Holder
    from gymnast.store.manifest import Manifest
    from gymnast.store.paths import RunPaths
    from gymnast.types.tokens import TokenForm

SYSTEM_CLOCK: Final = Clock(time.monotonic, time.time)
_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Workplace:
    """A run in chunks, and a worker of it."""

    paths: RunPaths
    plan: ChunkPlan
    manifest: Manifest
    options: WorkOptions
    holder: Holder
    token_form: TokenForm | None = None
    clock: Clock = SYSTEM_CLOCK

    @property
    def layout(self) -> ChunkLayout:
        return ChunkLayout.of(self.paths)

    @property
    def agents(self) -> list[str]:
        return [str(name) for name in self.manifest.plan["agents"]]


def open_workplace(
    paths: RunPaths, order: WorkOrder, *, worker: str | None = None, job: str | None = None
) -> Workplace:
    """The run that is to be worked on as this order says."""
    plan = read_chunk_plan(ChunkLayout.of(paths))
    manifest = read_manifest(paths.manifest)
    if manifest is None or not manifest.run_id == plan.run_id == order.run_id:
        raise DataError("the run's manifest, plan and work order are not of one run", where=str(paths.chunks))
    return Workplace(paths, plan, manifest, order.work, this_holder(worker, job), order.token_form)


def compose_for(order: WorkOrder, environ: Environ) -> Config:
    """The configuration that a work order names, as this worker's environment completes it."""
    names = order.config
    config = compose(
        environ,
        overrides=names.overrides,
        config_paths=names.config_paths,
        environments=names.environments,
        model_type=names.model_type,
        model=names.model,
        model_url=names.model_url,
        search_dirs=[Path(folder) for folder in (*names.search_dirs, names.folder) if folder],
    ).checked()
    return without_sandbox(config)[0] if names.unsafe_no_sandbox else config


def needed_instances(place: Workplace, config: Config) -> list[Instance]:
    """What the run's rows need. Refuses a configuration in which something that matters is not as it was planned."""
    instances = reachable(config, place.agents)
    before = {name: settings for name, settings in place.manifest.settings.items() if name != "plan"}
    changed = changes_since(place.manifest, before, instance_settings(instances), instances)
    if changed and not place.manifest.invocations[-1].forced:
        listed = "\n".join(f"  {line}" for line in changed[:_MOST_NAMED])
        raise UserError(
            f"here the run is not what was planned:\n{listed}",
            where=str(place.paths.output),
            next="start workers with the configuration and the code it was planned with, or plan another run",
        )
    return instances
