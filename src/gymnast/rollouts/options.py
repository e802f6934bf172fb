"""The options of a run in one object: what is collected, where it goes and how it runs.

Every way to start a run makes a `RunOptions`: the command line, `gymnast.collect`, `Collector`, the `ng_` commands,
workers of a chunked run and re-verification. `run_options` makes one from flat options.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from gymnast.errors import NotFoundError, UserError, suggest
from gymnast.rollouts.budget import Budget
from gymnast.rollouts.engine import EngineOptions
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.prompt import inline_template, is_template_file, read_prompt_file, read_template
from gymnast.rollouts.retry import DEFAULT_ATTEMPTS, DEFAULT_GIVE_UP_AFTER_S, DEFAULT_ROLLOUT_TIMEOUT_S, RetryPolicy
from gymnast.rollouts.row_fit import RowCheck
from gymnast.rollouts.row_map import parse_map
from gymnast.rollouts.run_fields import RunFields
from gymnast.rollouts.splits import configured_splits, write_split
from gymnast.store.paths import RunPaths
from gymnast.types.telemetry import TelemetryOptions
from gymnast.types.truncation import TRUNCATED_POLICIES

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from gymnast.config import Config
    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.runtime.find_head import Head
    from gymnast.types.json import JsonObject
    from gymnast.types.tokens import TokenForm
    from gymnast.types.truncation import TruncatedPolicy

OnChange = Literal["refuse", "fork", "extend", "force"]
"""What a resume does when inputs or settings changed since the run started."""
Existing = Literal["refuse", "overwrite", "set_aside", "resume", "resume_if_planned"]
"""What happens to an earlier run under the same name.

`resume_if_planned` is NeMo Gym's: without materialized inputs, the earlier run is set aside and a new one starts.
"""
_DEVICES: Final = (Path("/dev"), Path("/dev/fd"))
"""Standard output and others, also where they lead to a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run. A run in memory has no files; everything else has a default."""

    source: Path | None = None
    output: Path | None = None
    plan: PlanOptions = field(default_factory=PlanOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    existing: Existing = "refuse"
    on_change: OnChange = "refuse"
    retry_failed: bool | Container[str] = False
    """Retry permanently failed rollouts: all, or those of some failure kinds."""
    only: Container[int] | None = None
    """Packed keys of the rollouts to run; None runs everything that is owed."""
    workers: int = 0
    """Worker processes; 0 runs everything in this one."""
    serve: Head | None = None
    """A running `gymnast serve` whose agents are used; None starts servers for the run."""
    aggregate: bool = True
    request_debug: bool = False
    token_form: TokenForm | None = None
    """How records store the tokens of model calls; None uses the configuration."""
    source_origin: JsonObject | None = None
    """Which data the source was made from, for the manifest."""
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions)
    """Where workers of a submitted run report to; commands that run it themselves open it on their own."""

    @property
    def paths(self) -> RunPaths:
        assert self.output is not None, "a run in memory has no files"
        return RunPaths(self.output)


def run_options(
    config: Config | None,
    *,
    output: str | Path | None,
    source: str | Path | None = None,
    split: str | None = None,
    agent: str | None = None,
    num_repeats: int | Mapping[str, int] | None = None,
    limit: int | None = None,
    params: Mapping[str, Any] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    max_output_tokens: int | None = None,
    deep_merge: bool = True,
    prompt_config: str | Path | None = None,
    prompt: str | None = None,
    map: Mapping[str, str] | Sequence[str] | None = None,  # noqa: A002 - as the option is called
    skills: JsonObject | None = None,
    add_seed: bool = False,
    skip_bad_rows: bool = False,
    concurrency: int | None = None,
    rollout_timeout_s: float = DEFAULT_ROLLOUT_TIMEOUT_S,
    max_attempts: int = DEFAULT_ATTEMPTS,
    give_up_after_s: float = DEFAULT_GIVE_UP_AFTER_S,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    truncated: TruncatedPolicy = "score",
    workers: int = 0,
    existing: Existing = "refuse",
    resume: bool = False,
    overwrite: bool = False,
    on_change: OnChange = "refuse",
    retry_failed: bool = False,
    aggregate: bool = True,
    preflight: bool = True,
    token_form: TokenForm | None = None,
    serve: Head | None = None,
    read_fields: bool = True,
) -> RunOptions:
    """Make the options of a run from flat ones and the configuration; None if the program has none.

    Fields of NeMo Gym's collection in the configuration (`num_repeats`, `limit`, …) mean the same as the options. With
    `read_fields` off, the caller has read them.
    """
    values = config.values if config is not None else {}
    if config is not None and read_fields:
        fields = RunFields(config)
        agent = fields.text("agent_name", "--agent", agent)
        source = fields.text("input_jsonl_fpath", "--input", str(source) if source is not None else None)
        output = fields.text("output_jsonl_fpath", "--output", str(output) if output is not None else None)
        split = fields.text("split", "--split", split)
        num_repeats = fields.repeats(num_repeats)
        limit = fields.positive("limit", "--limit", limit)
        add_seed = fields.flag("num_repeats_add_seed", "--add-seed", given=add_seed)
        concurrency = fields.positive("num_samples_in_parallel", "--concurrency", concurrency)
        prompt_config = fields.text("prompt_config", "--prompt-config", str(prompt_config) if prompt_config else None)
        max_cost = fields.amount("max_cost", "--max-cost", max_cost)
        max_tokens = fields.positive("max_tokens", "--max-tokens", max_tokens)
        resume = fields.flag("resume_from_cache", "--resume", given=resume)
        aggregate = not fields.flag("disable_aggregation", "--disable-aggregation", given=not aggregate)
        preflight = not fields.flag("no_preflight", "--no-preflight", given=not preflight)
        skills = skills or fields.skills()
    renames = config.agent_renames if config is not None else {}
    if config is not None and agent is not None and renames and agent not in config.instances:
        agent = renames.get(agent)  # a recipe runs the rows of every agent that it replaced
    if isinstance(num_repeats, Mapping):
        num_repeats = {renames.get(name, name): count for name, count in num_repeats.items()}
    output = _require_file(output)
    repeats = [num_repeats] if num_repeats is None or isinstance(num_repeats, int) else [*num_repeats.values()]
    _check_numbers(
        *(("num_repeats", number, 1) for number in repeats),
        *(("limit", limit, 1), ("concurrency", concurrency, 1), ("max_attempts", max_attempts, 1)),
        *(("workers", workers, 0), ("max_output_tokens", max_output_tokens, 1), ("temperature", temperature, 0)),
        *(("top_p", top_p, 0), ("give_up_after_s", give_up_after_s, 0)),
        ("rollout_timeout_s", rollout_timeout_s, 0.001),
    )
    sampling = {"temperature": temperature, "top_p": top_p, "max_output_tokens": max_output_tokens}
    overrides = {**(values.get("responses_create_params") or {}), **(params or {})}
    overrides |= {name: value for name, value in sampling.items() if value is not None}
    return RunOptions(
        source=_resolve_source(config, source, split, output, resume=resume),
        output=output,
        plan=PlanOptions(
            agent=agent,
            only_agent=only_agent(config.agents) if config is not None else None,
            agent_renames=renames,
            agent_map=read_agent_map(config) if config is not None else {},
            task_agents=config.task_agents if config is not None else {},
            repeats=num_repeats or 1,
            limit=limit,
            add_seed=add_seed,
            params=overrides,
            deep_merge=deep_merge,
            row_map=parse_map(map),
            row_check=RowCheck(config.instances) if config is not None and read_fields else None,
            template=find_template(config, prompt_config, prompt),
            skills=skills,
            skip_bad_rows=skip_bad_rows,
        ),
        engine=EngineOptions(
            concurrency,
            rollout_timeout_s,
            RetryPolicy(max_attempts=max_attempts),
            give_up_after_s,
            budget=Budget(max_cost, max_tokens),
            truncated=check_truncated_policy(truncated),
            preflight=preflight,
        ),
        existing=_resume_mode(existing) if resume else "overwrite" if overwrite else existing,
        on_change=on_change,
        retry_failed=retry_failed,
        workers=workers,
        aggregate=aggregate,
        request_debug=bool(values.get("global_aiohttp_client_request_debug")),
        token_form=token_form,
        serve=serve,
    )


def _require_file(output: str | Path | None) -> Path:
    """The output, which must be named and be a regular file, or a new one."""
    if output is None:
        raise UserError("a run needs an output file", next="pass --output FILE")
    path = Path(output)
    if path.is_dir():
        raise UserError(
            "the output is a folder", where=str(path), next=f"name a file in it: --output {path / 'run.jsonl'}"
        )
    if str(path) == "-" or path.parent in _DEVICES or (path.exists() and not path.is_file()):
        raise UserError(
            "the output must be a regular file: a resume reads it, and other files go next to it",
            where=str(path),
            next="pass --output FILE; --json prints the events of the run to standard output",
        )
    return path


def _resume_mode(existing: Existing) -> Existing:
    return "resume_if_planned" if existing == "set_aside" else "resume"


def _check_numbers(*numbers: tuple[str, float | None, float]) -> None:
    """Raise UserError for the first number that is not finite or below its minimum."""
    for name, number, minimum in numbers:
        if number is not None and not (math.isfinite(number) and number >= minimum):
            raise UserError(f"{name} must be a number of at least {minimum:g}, got {number!r}")


def check_truncated_policy(name: str) -> TruncatedPolicy:
    """The policy of this name. Raises UserError for any other."""
    policy = next((policy for policy in TRUNCATED_POLICIES if policy == name), None)
    if policy is None:
        listed = f"{', '.join(TRUNCATED_POLICIES[:-1])} or {TRUNCATED_POLICIES[-1]}"
        raise UserError(
            f"expected {listed} for truncated rollouts, got '{name}'", next=suggest(name, TRUNCATED_POLICIES)
        )
    return policy


def find_template(config: Config | None, prompt_config: str | Path | None, prompt: str | None) -> PromptTemplate | None:
    """The template of `prompt_config`, a file, or of `prompt`, which is the text itself or a file."""
    if prompt_config and prompt is not None:
        raise UserError("--prompt and --prompt-config are mutually exclusive", next="use one of them")
    if prompt_config:
        return read_template(_find(config, prompt_config, "the prompt template"))
    if prompt is None:
        return None
    if is_template_file(prompt):
        return read_prompt_file(_find(config, prompt, "the prompt template"))
    return inline_template(prompt)


def read_agent_map(config: Config) -> dict[str, str]:
    """`agent_map`: the agents that run rows, by the agent or task source that rows name."""
    value = config.values.get("agent_map") or {}
    if not isinstance(value, Mapping) or not all(isinstance(agent, str) for agent in value.values()):
        raise UserError("agent_map must be a mapping of names to agents", next="+agent_map={in_rows: agent}")
    return {str(name): agent for name, agent in value.items()}


def only_agent(agents: Iterable[str]) -> str | None:
    """The agent for rows that name none, if there is only one."""
    names = list(agents)
    return names[0] if len(names) == 1 else None


def _resolve_source(
    config: Config | None, source: str | Path | None, split: str | None, output: Path, *, resume: bool
) -> Path:
    if (source is None) == (split is None):
        known = configured_splits(config) if config is not None else []
        available = f" (available: {', '.join(known)})" if known else ""
        what = "a run needs either an input file or a split" + ("" if source is None else ", not both")
        raise UserError(what, next=f"pass --input FILE or --split TYPE{available}")
    if split is not None:
        assert config is not None, "splits need a configuration"
        return write_split(config, split, RunPaths(output).split(split))
    assert source is not None
    if resume and config is not None:  # a resumed run has its plan, even if its source is gone
        return config.roots.find(str(source)) or Path(source)
    input_path = _find_input(config, source)
    if any(input_path.exists() and path.exists() and input_path.samefile(path) for path in RunPaths(output).all()):
        raise UserError(
            "the input is also a file of the run, which would replace it",
            where=str(input_path),
            next="choose another --output",
        )
    return input_path


def _find_input(config: Config | None, source: str | Path) -> Path:
    try:
        return _find(config, source, "the input file")
    except NotFoundError as error:
        hint = _input_hint(str(source)) or error.next
        raise NotFoundError(error.what, where=error.where, next=hint) from error


def _input_hint(source: str) -> str | None:
    """What to do about an input that is not a file's name."""
    if source == "-":
        return "standard input cannot be read twice, as a resume needs: write the rows into a file"
    if "://" in source:
        return f"download it first: curl -LO {source}"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", source) and "." not in source.rpartition("/")[2]:
        return f"a dataset of the Hugging Face Hub? gymnast data download --repo-id {source} --output-dir data"
    return None


def _find(config: Config | None, path: str | Path, what: str) -> Path:
    return config.roots.require(str(path), what) if config is not None else Path(path)
