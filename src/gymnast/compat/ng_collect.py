"""Collecting, profiling and scoring again, asked for with NeMo Gym's fields."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gymnast.compat.ng_asked import Asked, FieldError, Fields, is_positive

if TYPE_CHECKING:
    from gymnast.config import Config
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.reverify_plan import ReverifySource


def collect_rollouts(asked: Asked) -> int:
    """Through a running serve, or in this process where config files are given."""
    via_serve = asked.values.get("no_serve") is True
    config = asked.config(stub_policy=via_serve or not asked.names_configs).checked()
    source = config.roots.require(Fields(config).text("input_jsonl_fpath"), "input_jsonl_fpath")
    return _collect(config, source, through_serve=via_serve or not config.agents)


def e2e_collect_rollouts(asked: Asked) -> int:
    """With servers of its own, the configured datasets of one split."""
    from gymnast.rollouts.splits import write_split
    from gymnast.store.paths import RunPaths

    config = asked.config().checked()
    fields = Fields(config)
    split = fields.text("split")
    target = RunPaths(Path(fields.text("output_jsonl_fpath"))).split(split)
    if not (fields.flag("reuse_existing_data_preparation") and target.exists()):
        write_split(config, split, target)
    return _collect(config, target, through_serve=False)


def eval_run(asked: Asked) -> int:
    """`gym eval run`: a configured split, or the rows of a file; through a running serve with --no-serve."""
    given = asked.values.keys() | {word.lstrip("+").partition("=")[0] for word in asked.words}
    return e2e_collect_rollouts(asked) if "split" in given else collect_rollouts(asked)


def _collect(config: Config, source: Path, *, through_serve: bool) -> int:
    from gymnast.cli.collect import collect
    from gymnast.config import read_environ
    from gymnast.rollouts.options import run_options
    from gymnast.rollouts.skills import skills_ref
    from gymnast.rollouts.verdict import Allowance
    from gymnast.runtime.cell import token_form_of

    fields = Fields(config)
    skills = fields.mapping("skills").get("path")
    options = run_options(
        config,
        source=source,
        output=fields.text("output_jsonl_fpath"),
        agent=fields.optional("agent_name"),
        num_repeats=_repeats(config, fields),
        limit=fields.positive("limit"),
        add_seed=fields.flag("num_repeats_add_seed"),
        params=fields.mapping("responses_create_params"),
        deep_merge=False,
        prompt_config=fields.optional("prompt_config"),
        skills=skills_ref(config.roots.require(skills, "skills.path"), skills) if skills else None,
        concurrency=fields.positive("num_samples_in_parallel"),
        max_attempts=read_environ().max_attempts,
        max_cost=fields.amount("max_cost"),
        max_tokens=fields.positive("max_tokens"),
        existing="set_aside",
        resume=fields.flag("resume_from_cache"),
        aggregate=not fields.flag("disable_aggregation"),
        token_form=token_form_of(config, "items"),  # what readers of NeMo Gym's records expect
    )
    return collect(options, config, Allowance(), through_serve=through_serve, as_json=fields.flag("json"))


def _repeats(config: Config, fields: Fields) -> int | dict[str, int]:
    value = config.values.get("num_repeats")
    if not isinstance(value, dict):
        return fields.positive("num_repeats") or 1
    for name, count in value.items():
        if not is_positive(count):
            raise FieldError(f"num_repeats.{name} must be a whole number from 1, not {count!r}")
    return value


def reward_profile(asked: Asked) -> int:
    """Per-task statistics of a finished collection."""
    from gymnast.cli import profile
    from gymnast.profile.run_profile import ProfileRequest

    config = asked.config(stub_policy=True)
    fields = Fields(config)
    inputs = config.roots.require(fields.text("materialized_inputs_jsonl_fpath"), "materialized_inputs_jsonl_fpath")
    rollouts = config.roots.require(fields.text("rollouts_jsonl_fpath"), "rollouts_jsonl_fpath")
    request = ProfileRequest((inputs,), (rollouts,), rollouts, fields.flag("allow_partial_rollouts"))
    return profile.run(request, as_json=fields.flag("json"))


def reverify(asked: Asked) -> int:
    """`gym eval reverify`: score stored rollouts again, without inference."""
    from gymnast.cli.collect import run_and_report
    from gymnast.config import read_environ
    from gymnast.rollouts.reverify import reverify as score_again
    from gymnast.rollouts.verdict import Allowance

    config = asked.config(stub_policy=True).checked()
    source, options = _reverify_options(config, Fields(config))
    return run_and_report(
        lambda observer: score_again(source, options, config, read_environ(), observer),
        Allowance(),
        as_json=Fields(config).flag("json"),
    )


def _reverify_options(config: Config, fields: Fields) -> tuple[ReverifySource, RunOptions]:
    from gymnast.rollouts.engine import EngineOptions
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.reverify_plan import ReverifySource
    from gymnast.store.paths import RunPaths

    rollouts = config.roots.require(fields.text("rollouts_jsonl_fpath"), "rollouts_jsonl_fpath")
    inputs, append = fields.optional("materialized_inputs_jsonl_fpath"), fields.flag("append")
    if append and not fields.flag("judge_failed_only"):
        raise FieldError("append goes with judge_failed_only", next="without it, give an output of its own")
    resume, overwrite = fields.flag("resume_from_cache"), fields.flag("overwrite")
    if resume and overwrite:
        raise FieldError("resume_from_cache and overwrite exclude each other")
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
