"""`check run`: what will go wrong in a run, before it starts. Makes a few tiny requests and one short rollout.

The rows are planned as the run would plan them, into a temporary folder; the run's own files are not touched. The
rollout is that of the longest row, with a short answer: it goes through the agent, the tools, the sandbox, the verifier
and the judge that the run uses.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from pydantic import ValidationError

from gymnast.checks.endpoint import check_endpoint
from gymnast.checks.endpoint_result import EndpointOptions
from gymnast.checks.run_result import RunCheckResult
from gymnast.checks.run_verifier import check_verifier
from gymnast.checks.verifier_probe import expected_of
from gymnast.errors import UserError
from gymnast.kit.attempt import Task
from gymnast.rollouts.limits import host_cap
from gymnast.rollouts.observer import RunObserver
from gymnast.rollouts.plan import PlanOptions
from gymnast.rollouts.prepare import prepare_run
from gymnast.rollouts.prompt import count_chars, exceeds_context
from gymnast.rollouts.retry import RetryPolicy
from gymnast.rollouts.row_fit import CANNOT_BE_SCORED, RowCheck
from gymnast.rollouts.run import collect_run
from gymnast.rollouts.servers import reachable_instances
from gymnast.runtime.probe import endpoint_urls
from gymnast.store.lines import numbered_lines
from gymnast.store.paths import RunPaths
from gymnast.types.failure import FailureKind
from gymnast.types.task import PARAMS, agent_name_of

if TYPE_CHECKING:
    from gymnast.checks.endpoint_result import EndpointResult
    from gymnast.checks.run_result import RunCheckStatus
    from gymnast.config import Config, Environ
    from gymnast.rollouts.options import RunOptions
    from gymnast.types.json import JsonObject

_MAX_OUTPUT_TOKENS: Final = 1024
"""Of the rollout: long enough for a tool call, short enough to be cheap."""
_ROLLOUT_TIMEOUT_S: Final = 300.0
_MIN_CHARS_PER_TOKEN: Final = 3
_MIN_FREE_BYTES: Final = 64 << 20
_MAX_REASONS: Final = 5
_MAX_SAMPLES: Final = 3
_ENDPOINT: Final = "endpoint "


@dataclass(frozen=True, slots=True)
class _Rows:
    """The planned rows, as far as the other checks need them."""

    rollouts: int
    longest: JsonObject
    size_bytes: int
    """Of the longest row."""
    has_tools: bool
    samples: list[JsonObject]
    """A few rows with an expected answer."""


class Explanation(NamedTuple):
    """Why a rollout failed, and what to do."""

    reason: str
    action: str


Explain = Callable[[RunPaths], Explanation | None]
"""Finds out why the rollouts of a run failed: doctor, which this package must not import."""


async def check_run(options: RunOptions, config: Config, environ: Environ, explain: Explain) -> RunCheckResult:
    """Check everything that a run needs, one after the other."""
    result = RunCheckResult()
    _check_host(options, result)
    with tempfile.TemporaryDirectory(prefix="gymnast-check-") as folder:
        rows = _check_rows(options, config, Path(folder), result)
        if rows is None:
            return result
        context = await _check_endpoints(config, environ, rows, Path(folder), result)
        _check_context(rows, context, result)
        record_bytes = await _check_rollout(options, config, environ, rows, Path(folder), result, explain)
        await _check_verifiers(config, environ, rows, Path(folder), result)
    _check_disk(options, rows, record_bytes, result)
    return result


def _check_host(options: RunOptions, result: RunCheckResult) -> None:
    warnings = host_cap().warn(options.engine.concurrency)
    result.add("host", "warn" if warnings else "pass", warnings[0] if warnings else "enough open files and memory")


def _check_rows(options: RunOptions, config: Config, folder: Path, result: RunCheckResult) -> _Rows | None:
    planned = replace(options, output=folder / "plan.jsonl", existing="refuse", on_change="refuse")
    try:
        prepared = prepare_run(planned, config.agents, lambda names: reachable_instances(config, names))
    except UserError as error:
        result.add("rows", "fail", error.what, error.next or "")
        return None
    longest, has_tools, unscorable, lines = b"", False, Counter[str](), 0
    samples: list[JsonObject] = []
    find_reason = _ReasonFinder(config)
    for _, line in numbered_lines(prepared.paths.materialized_inputs):
        row = orjson.loads(line)
        lines += 1
        longest = max(longest, line, key=len)
        has_tools = has_tools or bool(row[PARAMS].get("tools"))
        unscorable.update(find_reason(row))
        if len(samples) < _MAX_SAMPLES and expected_of(row) is not None:
            samples.append(_without_identity(row))
    if not longest:
        result.add("rows", "fail", "there are no rows", "check the input file")
        return None
    for warning in prepared.warnings:
        if CANNOT_BE_SCORED not in warning:  # told below, by rollouts
            result.add("rows", "warn", warning)
    for reason, count in unscorable.most_common(_MAX_REASONS):
        status: RunCheckStatus = "fail" if count == lines else "warn"
        result.add(
            "rows", status, f"{count} of {lines} rows cannot be scored: {reason}", "gymnast check rows tells more"
        )
    rollouts = sum(prepared.agents.values())
    result.add("rows", "pass", f"{rollouts} rollouts for {', '.join(prepared.agents)}")
    return _Rows(rollouts, orjson.loads(longest), len(longest), has_tools, samples)


class _ReasonFinder:
    """Finds out why no answer to a planned row can be right."""

    def __init__(self, config: Config) -> None:
        self._check = RowCheck(config.instances)

    def __call__(self, row: JsonObject) -> list[str]:
        models = self._check.models_of(agent_name_of(row) or "")
        reasons = [_validate(model, row).unscorable_reason(row[PARAMS]) for _, model in models]
        return [reason for reason in reasons if reason is not None]


def _validate(model: type[Task], row: JsonObject) -> Task:
    try:
        return model.model_validate(row)
    except ValidationError:
        return Task()  # skipped on request; the plan has named it


async def _check_endpoints(
    config: Config, environ: Environ, rows: _Rows, folder: Path, result: RunCheckResult
) -> int | None:
    """Check each model that has an endpoint; the smallest context length, if any of them reports it."""
    agent = agent_name_of(rows.longest)
    used = reachable_instances(config, [agent] if agent else config.agents)
    contexts: list[int] = []
    for instance in used:
        if not endpoint_urls([instance]):
            continue
        is_policy = instance.name == "policy_model"
        required = frozenset({"tools_auto"}) if rows.has_tools and is_policy else frozenset[str]()
        checked = await check_endpoint(config, environ, instance, EndpointOptions(required, 60.0), folder)
        _add_endpoint(instance.name, checked, result)
        observed = next((check.observed for check in checked.checks if check.name == "context"), "")
        match = re.match(r"(\d+) tokens", observed)
        contexts += [int(match[1])] if match and is_policy else []
    return min(contexts, default=None)


def _add_endpoint(name: str, checked: EndpointResult, result: RunCheckResult) -> None:
    """Only an endpoint that does not answer fails: a model may call no tool, or be served without being listed."""
    answers = any(check.name == "answer" and check.status == "pass" for check in checked.checks)
    for check in checked.checks:
        if not check.needed and (check.name != "models" or check.status != "fail"):
            continue
        status: RunCheckStatus = "pass" if check.status == "pass" else "warn" if answers else "fail"
        means = f"; {check.means}" if check.means and status != "pass" else ""
        result.add(_ENDPOINT + check.name, status, f"{name} at {checked.address}: {check.observed}{means}", check.next)


def _check_context(rows: _Rows, context: int | None, result: RunCheckResult) -> None:
    """Compare the longest row with the context. Only what is certain fails: tokens have 3 to 10 characters."""
    if context is None:
        result.add("context", "skip", "the endpoint does not report its context length")
        return
    params = rows.longest[PARAMS]
    chars = count_chars(params)
    output = int(params.get("max_output_tokens") or 0)
    text = f"the longest row has {chars} characters, and {output} output tokens; the context has {context} tokens"
    step = "raise the server's context (vLLM: --max-model-len), drop such rows, or lower --max-output-tokens"
    if output >= context or exceeds_context(params, context):
        result.add("context", "fail", text, step)
    elif chars / _MIN_CHARS_PER_TOKEN + output > context:
        result.add("context", "warn", text, step)
    else:
        result.add("context", "pass", text)


async def _check_rollout(
    options: RunOptions,
    config: Config,
    environ: Environ,
    rows: _Rows,
    folder: Path,
    result: RunCheckResult,
    explain: Explain,
) -> int:
    """Run one rollout of the longest row; the size of its record."""
    is_unreachable = result.has_failed(f"{_ENDPOINT}models", f"{_ENDPOINT}answer")
    if is_unreachable or result.has_failed("context") or result.has_failed("rows"):
        result.add("rollout", "skip", "not tried, because another check failed")
        return 0
    source, output = folder / "row.jsonl", folder / "trial.jsonl"
    source.write_bytes(orjson.dumps(_trial_row(rows.longest)) + b"\n")
    engine = replace(
        options.engine,
        rollout_timeout_s=_ROLLOUT_TIMEOUT_S,
        retry=RetryPolicy(max_attempts=1),
        truncated="score",
        preflight=False,
    )
    trial = replace(
        options,
        source=source,
        output=output,
        plan=PlanOptions(),
        engine=engine,
        workers=0,
        existing="refuse",
        retry_failed=False,
        aggregate=False,
    )
    try:
        async with asyncio.timeout(2 * _ROLLOUT_TIMEOUT_S):
            finished = await collect_run(trial, config, environ, RunObserver())
    except UserError as error:
        result.add("rollout", "fail", error.what, error.next or "")
        return 0
    except TimeoutError:
        result.add("rollout", "warn", f"the servers did not start within {2 * _ROLLOUT_TIMEOUT_S:.0f} s")
        return 0
    if finished.scored:
        record = orjson.loads(output.read_bytes().splitlines()[0])
        result.add("rollout", "pass", f"the longest row was run and scored: reward {record.get('reward')}")
        result.downgrade(_ENDPOINT)  # a reasoning model may answer a tiny request with nothing
        return output.stat().st_size
    _add_failure(RunPaths(output), result, explain)
    return 0


def _add_failure(paths: RunPaths, result: RunCheckResult, explain: Explain) -> None:
    """Report why the rollout has no reward."""
    explanation = explain(paths)
    if FailureKind.ROLLOUT_TIMEOUT.value in paths.failures.read_text():
        result.add("rollout", "warn", f"the longest row took more than {_ROLLOUT_TIMEOUT_S:.0f} s")
    elif explanation is not None:
        result.add("rollout", "fail", explanation.reason, explanation.action)
    else:
        result.add(
            "rollout", "fail", "the rollout has no reward", "gymnast collect with --limit 1, then gymnast doctor"
        )


async def _check_verifiers(config: Config, environ: Environ, rows: _Rows, folder: Path, result: RunCheckResult) -> None:
    """Probe the environments of the agent of the longest row."""
    agent = agent_name_of(rows.longest)
    samples = [row for row in rows.samples if agent_name_of(row) == agent]
    used = config.instance(agent).refs.values() if agent is not None else ()
    for environment in [config.instance(ref.name) for ref in used]:
        if environment.kind != "resources_servers" or environment.url is not None:
            continue
        if result.has_failed("rollout") or (result.has_failed(f"{_ENDPOINT}answer") and environment.refs):
            result.add("verifier", "skip", "not probed, because another check failed")
            continue
        await check_verifier(config, environ, environment, samples, folder, result)


def _without_identity(planned: JsonObject) -> dict[str, Any]:
    return {name: value for name, value in planned.items() if not name.startswith("_ng_")}


def _trial_row(planned: JsonObject) -> dict[str, Any]:
    row = _without_identity(planned)
    params = row[PARAMS]
    limit = min(int(params.get("max_output_tokens") or _MAX_OUTPUT_TOKENS), _MAX_OUTPUT_TOKENS)
    return {**row, PARAMS: {**params, "max_output_tokens": limit}}


def _check_disk(options: RunOptions, rows: _Rows, record_bytes: int, result: RunCheckResult) -> None:
    folder = options.paths.output.resolve().parent
    while not folder.exists():
        folder = folder.parent
    stats = os.statvfs(folder)
    free, needed = stats.f_bavail * stats.f_frsize, rows.rollouts * (rows.size_bytes + record_bytes)
    text = f"{free / 1e9:.1f} GB are free in {folder}; the run needs about {needed / 1e9:.2f} GB"
    if not os.access(folder, os.W_OK):
        result.add("disk", "fail", f"{folder} is not writable", "choose another --output")
    elif free < _MIN_FREE_BYTES:
        result.add("disk", "fail", text, "free some space, or choose another --output")
    else:
        result.add("disk", "warn" if free < needed else "pass", text, "free some space, or choose another --output")
