"""What a worker works on and under which identity, and the configuration it must have to be allowed to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.chunks.finder import Clock
from gymnast.chunks.identity import this_holder
from gymnast.config import Config, Environ, Instance, compose
from gymnast.config.known_keys import RUN_KEYS
from gymnast.errors import DataError, UserError
from gymnast.rollouts.identity import instance_settings
from gymnast.rollouts.prepare import changes_since
from gymnast.rollouts.servers import reachable_instances
from gymnast.rollouts.tool_modes import restore_tool_modes
from gymnast.runtime.unsandboxed import without_sandbox
from gymnast.store.chunk_layout import ChunkLayout
from gymnast.store.chunk_state import read_chunk_plan
from gymnast.store.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    from gymnast.chunks.worker_spec import WorkerOptions, WorkerSpec
    from gymnast.store.chunk_files import ChunkPlan, Holder
    from gymnast.store.paths import RunPaths
    from gymnast.types.tokens import TokenForm

SYSTEM_CLOCK: Final = Clock(time.monotonic, time.time)
_MAX_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """A run in chunks, and one worker of it."""

    paths: RunPaths
    plan: ChunkPlan
    manifest: Manifest
    options: WorkerOptions
    holder: Holder
    token_form: TokenForm | None = None
    clock: Clock = SYSTEM_CLOCK

    @property
    def layout(self) -> ChunkLayout:
        return ChunkLayout.of(self.paths)

    @property
    def agents(self) -> list[str]:
        return [str(name) for name in self.manifest.plan["agents"]]


def open_worker_context(
    paths: RunPaths, spec: WorkerSpec, *, worker: str | None = None, job: str | None = None
) -> WorkerContext:
    """Read the plan and the manifest of a run. Raises DataError if they do not belong to this spec."""
    plan = read_chunk_plan(ChunkLayout.of(paths))
    manifest = read_manifest(paths.manifest)
    if manifest is None or not manifest.run_id == plan.run_id == spec.run_id:
        raise DataError("the run's manifest, plan and worker spec belong to different runs", where=str(paths.chunks))
    return WorkerContext(paths, plan, manifest, spec.options, this_holder(worker, job), spec.token_form)


def compose_config(spec: WorkerSpec, environ: Environ) -> Config:
    """Compose the configuration of a spec with this worker's environment."""
    arguments = spec.config
    config = compose(
        environ,
        overrides=arguments.overrides,
        config_paths=arguments.config_paths,
        environments=arguments.environments,
        model_type=arguments.model_type,
        model=arguments.model,
        model_url=arguments.model_url,
        model_key_name=arguments.model_key_name,
        search_dirs=[Path(folder) for folder in (*arguments.search_dirs, arguments.folder) if folder],
        command_keys=RUN_KEYS,
        agent=arguments.agent,
    ).require_valid()
    return without_sandbox(config)[0] if arguments.unsafe_no_sandbox else config


def select_instances(context: WorkerContext, config: Config) -> list[Instance]:
    """The instances that the run's rows need. Raises UserError if their settings differ from those of the plan."""
    instances = restore_tool_modes(reachable_instances(config, context.agents), context.manifest.settings)
    before = {name: settings for name, settings in context.manifest.settings.items() if name != "plan"}
    changed = changes_since(context.manifest, before, instance_settings(instances), instances)
    if changed and not context.manifest.invocations[-1].forced:
        listed = "\n".join(f"  {line}" for line in changed[:_MAX_NAMED])
        raise UserError(
            f"this worker's configuration or code differs from what the run was planned with:\n{listed}",
            where=str(context.paths.output),
            next="start workers with the configuration and code of the plan, or plan another run",
        )
    return instances
