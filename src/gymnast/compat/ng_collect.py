"""Collecting, profiling and reverifying, with NeMo Gym's fields."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gymnast.compat.ng_arguments import FieldError, Fields, NgArguments, in_fields
from gymnast.config.datasets import TYPES
from gymnast.errors import UserError
from gymnast.runtime.surface_import import import_surface

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.reverify_plan import ReverifySource


def collect_rollouts(arguments: NgArguments) -> int:
    """Collect through a running serve, or in this process if config files are given."""
    return _collect_file(arguments, without_input="add +input_jsonl_fpath=PATH")


def _collect_file(arguments: NgArguments, *, without_input: str) -> int:
    via_serve = arguments.values.get("no_serve") is True
    config = arguments.config(stub_policy=via_serve or not arguments.names_configs).require_valid()
    path = Fields(config).optional("input_jsonl_fpath")
    if path is None:
        raise FieldError("+input_jsonl_fpath=… is required", next=without_input)
    source = config.roots.require(path, "input_jsonl_fpath")
    return _collect(config, source, through_serve=via_serve or not config.agents)


def e2e_collect_rollouts(arguments: NgArguments) -> int:
    """Start servers and collect the configured datasets of one split."""
    from gymnast.data.prepare import write_split_metrics
    from gymnast.rollouts.splits import write_split
    from gymnast.store.paths import RunPaths

    config = arguments.config().require_valid()
    fields = Fields(config)
    split = fields.one_of("split", TYPES)
    target = RunPaths(Path(fields.text("output_jsonl_fpath"))).split(split)
    if not (fields.flag("reuse_existing_data_preparation") and target.exists()):
        write_split(config, split, target)
        write_split_metrics(config, split, target.with_name(f"{split}_metrics.json"))
    driver = fields.optional("rollout_collection_driver")
    return _collect(config, target, through_serve=False) if driver is None else _drive(config, driver, target)


def _drive(config: Config, driver: str, source: Path) -> int:
    """Serve, and let a function of the checkout collect: `module.path:function`."""
    module, _, name = driver.partition(":")
    if not module or not name:
        raise FieldError(f"rollout_collection_driver must be module.path:function, not '{driver}'")
    import_surface()
    sys.path += [str(root) for root in (*config.roots.extra, config.roots.cwd) if str(root) not in sys.path]
    from gymnast.compat.nemo_gym.cli import RunHelper
    from gymnast.compat.nemo_gym.rollout_collection import RolloutCollectionConfig

    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"cannot load the rollout_collection_driver '{driver}': {error}") from error
    settings = RolloutCollectionConfig.model_validate({**config.values, "input_jsonl_fpath": str(source)})
    helper = RunHelper()
    helper.serve(config)
    try:
        asyncio.run(function(settings, dict(config.values)))
    finally:
        helper.shutdown()
    return 0


def eval_run(arguments: NgArguments) -> int:
    """`gym eval run`: a configured split, or the rows of a file; through a running serve with --no-serve."""
    keys = arguments.values.keys() | {word.lstrip("+").partition("=")[0] for word in arguments.words}
    if "split" in keys:
        return e2e_collect_rollouts(arguments)
    return _collect_file(arguments, without_input=f"pass --input FILE or --split {'|'.join(TYPES)}")


def _collect(config: Config, source: Path, *, through_serve: bool) -> int:
    from gymnast.cli.live_run import LiveRun
    from gymnast.cli.options import say
    from gymnast.compat.ng_trackers import read_trackers
    from gymnast.config import read_environ
    from gymnast.rollouts.exit_status import Allowance
    from gymnast.rollouts.options import check_truncated_policy, run_options
    from gymnast.rollouts.run_fields import read_repeats
    from gymnast.rollouts.skills import skills_ref
    from gymnast.rollouts.tool_modes import offer_row_tools
    from gymnast.runtime.cell import read_token_form
    from gymnast.runtime.find_head import find_head
    from gymnast.tracking.telemetry import open_telemetry
    from gymnast.types.telemetry import DEFAULT_TRACE_SAMPLE

    config = offer_row_tools(config)
    fields, environ = Fields(config), read_environ()
    skills = fields.mapping("skills").get("path")
    options = run_options(
        config,
        source=source,
        output=fields.text("output_jsonl_fpath"),
        agent=fields.optional("agent_name"),
        num_repeats=read_repeats(config),
        limit=fields.positive("limit"),
        add_seed=fields.flag("num_repeats_add_seed"),
        params=fields.mapping("responses_create_params"),
        deep_merge=False,
        prompt_config=fields.optional("prompt_config"),
        skills=skills_ref(config.roots.require(skills, "skills.path"), skills) if skills else None,
        concurrency=fields.positive("num_samples_in_parallel"),
        max_attempts=environ.max_attempts,
        max_cost=fields.amount("max_cost"),
        max_tokens=fields.positive("max_tokens"),
        truncated=check_truncated_policy(fields.optional("truncated") or "score"),
        existing="set_aside",
        resume=fields.flag("resume_from_cache"),
        retry_failed=fields.flag("retry_failed"),
        aggregate=not fields.flag("disable_aggregation"),
        preflight=not fields.flag("no_preflight"),
        skip_bad_rows=fields.flag("skip_bad_rows"),
        token_form=read_token_form(config, "items"),  # as readers of NeMo Gym's records expect
        read_fields=False,
        serve=find_head(None, config, environ) if through_serve else None,
    )
    with open_telemetry(read_trackers(fields), None, DEFAULT_TRACE_SAMPLE, say) as telemetry:
        live = LiveRun(as_json=fields.flag("json"), telemetry=telemetry, adapt_hint=in_fields)
        return live.report(live.collect(options, config), Allowance())


def reward_profile(arguments: NgArguments) -> int:
    """Profile a finished collection."""
    from gymnast.cli import profile
    from gymnast.profile.run_profile import ProfileRequest

    config = arguments.config(stub_policy=True)
    fields = Fields(config)
    inputs = config.roots.require(fields.text("materialized_inputs_jsonl_fpath"), "materialized_inputs_jsonl_fpath")
    rollouts = config.roots.require(fields.text("rollouts_jsonl_fpath"), "rollouts_jsonl_fpath")
    request = ProfileRequest((inputs,), (rollouts,), rollouts, fields.flag("allow_partial_rollouts"))
    return profile.run(request, as_json=fields.flag("json"))


def reverify(arguments: NgArguments) -> int:
    """`gym eval reverify`: score stored rollouts again, without inference."""
    from gymnast.cli.live_run import LiveRun
    from gymnast.config import read_environ
    from gymnast.rollouts.exit_status import Allowance
    from gymnast.rollouts.reverify import reverify as score_again

    config = arguments.config(stub_policy=True).require_valid()
    source, options = _reverify_options(config, Fields(config))
    live = LiveRun(as_json=Fields(config).flag("json"))
    finished = live.run(lambda observer: score_again(source, options, config, read_environ(), observer))
    return live.report(finished, Allowance())


def _reverify_options(config: Config, fields: Fields) -> tuple[ReverifySource, RunOptions]:
    from gymnast.rollouts.engine import EngineOptions
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.reverify_plan import ReverifySource
    from gymnast.store.paths import RunPaths

    rollouts = config.roots.require(fields.text("rollouts_jsonl_fpath"), "rollouts_jsonl_fpath")
    inputs, append = fields.optional("materialized_inputs_jsonl_fpath"), fields.flag("append")
    if append and not fields.flag("judge_failed_only"):
        raise FieldError("append needs judge_failed_only", next="or set output_jsonl_fpath instead of append")
    resume, overwrite = fields.flag("resume_from_cache"), fields.flag("overwrite")
    if resume and overwrite:
        raise FieldError("resume_from_cache and overwrite are mutually exclusive")
    source = ReverifySource(
        rollouts=rollouts,
        inputs=config.roots.require(inputs, "inputs") if inputs else RunPaths(rollouts).materialized_inputs,
        judge_failed_only=fields.flag("judge_failed_only"),
        limit=fields.positive("limit"),
        force=fields.flag("force"),
    )
    options = RunOptions(
        output=rollouts if append else Path(fields.text("output_jsonl_fpath")),
        engine=EngineOptions(fields.positive("num_samples_in_parallel"), 600.0),
        existing="resume" if resume else "overwrite" if overwrite else "refuse",
        aggregate=not fields.flag("disable_aggregation"),
    )
    return source, options
