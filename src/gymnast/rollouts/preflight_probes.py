"""What can be known before the first rollout of a run: disk space, prompts that exceed the context, judges that refuse.

Costs a look at the disk and at the first row, and one request of a few tokens for each judge that is not the policy.
Only a full disk ends a run here. Anything else is a suspicion, which the first rollout confirms or refutes.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import orjson

from gymnast.errors import CallError, UserError
from gymnast.rollouts.preflight import Suspicion, is_same_for_all, shows_overflow, shows_refused_judge
from gymnast.rollouts.prompt import count_chars, exceeds_context
from gymnast.runtime.probe import endpoint_urls
from gymnast.store.lines import numbered_lines
from gymnast.types.failure import Stage
from gymnast.types.task import PARAMS, agent_name_of
from gymnast.wire.endpoint_errors import MEANINGS, Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.config import Instance
    from gymnast.rollouts.observer import RunObserver
    from gymnast.rollouts.options import RunOptions
    from gymnast.rollouts.prepare import PreparedRun
    from gymnast.rollouts.servers import Servers
    from gymnast.types.failure import FailureDetail
    from gymnast.wire.calls import Calls

_JUDGE_TIMEOUT_S: Final = 5.0
"""An endpoint that refuses does so at once; one that is slow is not at fault."""
_JUDGE_REQUEST: Final = {
    "input": [{"role": "user", "content": "Reply with the single word: ready"}],
    "max_output_tokens": 16,
}
_MIN_FREE_BYTES: Final = 64 << 10
_MAX_COMPRESSION: Final = 20
"""Records repeat their rows, so a run needs at least the size of its plan; file systems may compress it this much."""


def needs_preflight(options: RunOptions, prepared: PreparedRun) -> bool:
    """Whether a run has a preflight: unless it was declined, or rollouts were scored with the same configuration.

    Not with several endpoints of one model: what one of them refuses, another may accept.
    """
    manifest = prepared.manifest
    if any(len(endpoint_urls([instance])) > 1 for instance in prepared.instances):
        return False
    is_changed = bool(manifest.invocations) and manifest.invocations[-1].forced
    return options.engine.preflight and (manifest.counts.scored == 0 or is_changed)


async def find_suspicions(
    prepared: PreparedRun, servers: Servers, options: RunOptions, observer: RunObserver
) -> tuple[Suspicion, ...]:
    """Probe what the run needs. Raises UserError if it cannot start at all."""
    if prepared.is_new:
        check_disk(prepared.paths.output, int(prepared.manifest.plan.get("bytes") or 0))
    refusals = [] if options.workers else await _probe_judges(servers)  # with workers, judges are in other processes
    observer.warn(f"preflight: {suspicion.reason}" for suspicion in refusals)
    return (*find_overflow(prepared.paths.materialized_inputs, _contexts_of_agents(servers)), *refusals)


def check_disk(output: Path, plan_bytes: int) -> None:
    """Raise UserError if the disk has no room for the records of a run."""
    stats = os.statvfs(output.parent)
    blocks = stats.f_bfree if os.geteuid() == 0 else stats.f_bavail
    if not stats.f_blocks:
        return  # a file system that does not say
    free = blocks * stats.f_frsize
    if free < max(_MIN_FREE_BYTES, plan_bytes / _MAX_COMPRESSION):
        raise UserError(
            f"the disk is full: {free / 1e6:.1f} MB are free, and the planned rows have {plan_bytes / 1e6:.1f} MB",
            where=str(output.parent),
            next="free some space, or choose another --output; --no-preflight runs anyway",
        )


def find_overflow(plan: Path, contexts: Mapping[str, int]) -> list[Suspicion]:
    """Agents all of whose rows exceed the context of their model. Usually the first row shows that they do not."""
    shortest: dict[str, int] = {}
    pending = dict(contexts)
    for _, line in numbered_lines(plan) if pending else ():
        row = orjson.loads(line)
        agent, params = agent_name_of(row) or "", row[PARAMS]
        context = pending.get(agent)
        if context is None:
            continue
        if exceeds_context(params, context):
            shortest[agent] = min(count_chars(params), shortest.get(agent, count_chars(params)))
            continue
        del pending[agent]
        if not pending:
            break
    return [_overflow(agent, shortest[agent], context) for agent, context in pending.items() if agent in shortest]


def _overflow(agent: str, chars: int, context: int) -> Suspicion:
    reason = (
        f"every row of {agent} exceeds the context of {context} tokens: even the shortest prompt has {chars} "
        f"characters, and max_output_tokens counts, too; {MEANINGS[Cause.CONTEXT_OVERFLOW].action}"
    )
    return Suspicion(frozenset({agent}), reason, shows_overflow)


def _contexts_of_agents(servers: Servers) -> dict[str, int]:
    """The context length of each agent's model, where the endpoint reports it."""
    contexts: dict[str, int] = {}
    for instance in servers.instances:
        if instance.kind == "responses_api_agents":
            lengths = [servers.contexts[ref.name] for ref in instance.refs.values() if ref.name in servers.contexts]
            if lengths:
                contexts[instance.name] = max(lengths)
    return contexts


async def _probe_judges(servers: Servers) -> list[Suspicion]:
    """Send a small request to each judge, all at once."""
    judges = list(_find_judges(servers.instances))
    details = await asyncio.gather(*(_probe_judge(servers.calls, judge) for judge, _ in judges))
    return [
        Suspicion(agents, _describe_refusal(judge, detail), shows_refused_judge)
        for (judge, agents), detail in zip(judges, details, strict=True)
        if detail is not None
    ]


def _find_judges(instances: list[Instance]) -> Iterator[tuple[Instance, frozenset[str]]]:
    """Models with an endpoint that environments use and agents do not, with the agents of these environments."""
    agents = [instance for instance in instances if instance.kind == "responses_api_agents"]
    of_agents = {ref.name for agent in agents for ref in agent.refs.values()}
    for model in instances:
        if model.name in of_agents or not endpoint_urls([model]):
            continue
        users = {server.name for server in instances if any(ref.name == model.name for ref in server.refs.values())}
        affected = {agent.name for agent in agents if any(ref.name in users for ref in agent.refs.values())}
        if affected:
            yield model, frozenset(affected)


async def _probe_judge(calls: Calls, judge: Instance) -> FailureDetail | None:
    """Why a judge refuses every request, or None: it answers, is slow, busy, or dislikes this request."""
    try:
        reply = await calls.call(
            judge.name, "/v1/responses", _JUDGE_REQUEST, stage=Stage.MODEL, timeout_s=_JUDGE_TIMEOUT_S
        )
    except CallError as error:
        detail: FailureDetail | None = error.detail
    else:
        detail = reply.failure if not reply.ok else None
    return detail if detail is not None and is_same_for_all(detail) else None


def _describe_refusal(judge: Instance, detail: FailureDetail) -> str:
    meaning = MEANINGS[Cause(detail.cause or Cause.UNRECOGNISED)]
    url = next(iter(endpoint_urls([judge])), "")
    step = meaning.action.replace("{endpoint}", url)
    return f"the judge '{judge.name}' refuses requests: {detail.message}; {step}"
