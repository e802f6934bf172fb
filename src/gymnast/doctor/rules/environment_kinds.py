"""Kind rules about environments: rejected rows, verifiers, tools, sessions, judges, sandboxes. Data only."""

from __future__ import annotations

from typing import Final

from gymnast.doctor.findings import Confidence
from gymnast.doctor.rules.kind_rule import EMPTY, NON_EMPTY, KindRule
from gymnast.types.failure import FailureKind, Layer

BOUNDARY: Final = (
    "rerun one of them with logged request boundaries: the same collect command with --limit 1 and another --output, "
    "plus ++global_aiohttp_client_request_debug=True, and read the innermost [request-boundary] line"
)

ENVIRONMENT: Final = (
    KindRule(
        "verify_schema",
        (FailureKind.VERIFY_REJECTED,),
        "{instance} rejects rows at /verify",
        "the rows lack fields that the environment's task model requires",
        "compare row and model field by field: gymnast check rows DATA --against {instance}; correct the rows, then "
        "collect them again",
        "Servers are ready, but /verify returns 422.",
        step=8,
    ),
    KindRule(
        "seed_schema",
        (FailureKind.SEED_REJECTED,),
        "{instance} rejects rows when opening their session",
        "the rows lack fields that the environment's task model requires",
        "compare row and model field by field: gymnast check rows DATA --against {instance}; correct the rows, then "
        "collect them again",
        "/seed_session returns 4xx.",
        step=8,
    ),
    KindRule(
        "agent_schema",
        (FailureKind.AGENT_REJECTED,),
        "the agent {instance} rejects rows",
        "the rows lack fields that the agent's request model requires",
        "correct the fields named below (gymnast data validate checks a file), then collect them again",
        "/run returns 4xx.",
        step=8,
    ),
    KindRule(
        "verifier_exception",
        (FailureKind.VERIFIER_ERROR,),
        "{instance} raises an exception while verifying",
        "an exception in the environment's verifier; the first real one is quoted below",
        "fix the verifier where the traceback in {log} points to, then --resume --retry-failed",
        "/verify returns 500 and names the exception.",
        step=7,
        flavors=NON_EMPTY,
    ),
    KindRule(
        "inner_500_no_body",
        (FailureKind.VERIFIER_ERROR, FailureKind.AGENT_ERROR, FailureKind.TOOL_ERROR),
        "an inner server ({instance}) returns an error without a body",
        "the real error was lost on the way out; only the innermost boundary shows it",
        BOUNDARY,
        "Nested 500s arrive without the body of the real error.",
        step=7,
        flavors=EMPTY,
    ),
    KindRule(
        "verifier_slow",
        (FailureKind.VERIFIER_TIMEOUT,),
        "verification by {instance} exceeds its deadline",
        "the verifier computes or waits longer than verify_timeout_s at this concurrency",
        "raise the agent's verify_timeout_s or lower --concurrency; if it computes, runs_in: child helps",
        "/verify takes longer than `verify_timeout_s`.",
        step=7,
    ),
    KindRule(
        "verifier_reply",
        (FailureKind.VERIFIER_BAD_REPLY,),
        "{instance} returns no finite reward from /verify",
        "the verifier returns NaN, nothing, or another shape",
        "return a finite `reward`; gymnast check env finds such cases before a run",
        "The reply of /verify has no finite `reward`.",
        step=7,
    ),
    KindRule(
        "seed_exception",
        (FailureKind.SEED_ERROR,),
        "{instance} raises an exception while opening sessions",
        "an exception in the environment's `open`; the first real one is quoted below",
        "fix the code that the traceback in {log} points to, then --resume --retry-failed",
        "/seed_session returns 500.",
        step=7,
        flavors=NON_EMPTY | EMPTY,
    ),
    KindRule(
        "work_process_died",
        (FailureKind.VERIFIER_ERROR, FailureKind.SEED_ERROR, FailureKind.TOOL_ERROR, FailureKind.AGENT_ERROR),
        "worker processes of {instance} end before they have a result",
        "memory (a limit of the job, of a cgroup, or ulimit -v), a signal, or a crash in native code; not the logic of "
        "the environment",
        "check whether memory ran out (dmesg -T, ulimit -a, sacct --format=MaxRSS), read the command's output; request "
        "more memory or lower --concurrency, and --resume --retry-failed",
        "A worker process of an environment ends on its own.",
        step=1,
        flavors=frozenset({"crashed"}),
        confidence=Confidence.MEDIUM,
        explains=frozenset({"verifier_exception", "agent_exception"}),
        belongs_to=Layer.INFRA,
    ),
    KindRule(
        "seed_slow",
        (FailureKind.SEED_TIMEOUT,),
        "opening sessions of {instance} exceeds its deadline",
        "the environment opens sessions too slowly at this concurrency",
        "lower --concurrency or raise the agent's seed_timeout_s",
        "/seed_session takes longer than `seed_timeout_s`.",
        step=7,
    ),
    KindRule(
        "tool_exception",
        (FailureKind.TOOL_ERROR,),
        "a tool of {instance} crashes",
        "an exception in the environment's tool; the first real one is quoted below",
        "fix the code that the traceback in {log} points to, then --resume --retry-failed",
        "A tool returns 500.",
        step=4,
        flavors=NON_EMPTY,
    ),
    KindRule(
        "tool_hang",
        (FailureKind.TOOL_TIMEOUT,),
        "a tool of {instance} does not answer in time",
        "the tool hangs or is slow; model settings do not matter here",
        "first check that {instance} has the tool and has loaded what it needs (gymnast check env), then lower "
        "--concurrency or raise the agent's tool_timeout_s",
        "A tool takes longer than `tool_timeout_s`.",
        step=4,
    ),
    KindRule(
        "session_expired",
        (FailureKind.SESSION_EXPIRED,),
        "rollouts outlive their session in {instance}",
        "a rollout takes longer than session_ttl_s, usually because the policy is slow",
        "raise session_ttl_s of {instance} or lower --concurrency, then --resume",
        "A session expires before its rollout ends.",
        step=4,
    ),
    KindRule(
        "judge_failed",
        (FailureKind.JUDGE_FAILED,),
        "the judge of {instance} gives no verdict",
        "the judge's reply is not a verdict, or the environment could not call it; its message is quoted below",
        "make the judge follow its prompt (another model, more max_output_tokens) and reachable; responses are "
        "kept: gymnast reverify {run} scores them again",
        "The judge gives no verdict; the rollouts' responses are kept.",
        step=7,
        flavors=frozenset({""}),
    ),
    KindRule(
        "judge_down",
        (FailureKind.JUDGE_FAILED,),
        "the judge's endpoint fails: rollouts of {instance} have no verdict",
        "the judge model is unreachable, overloaded, or returns errors; the policy works",
        "start or fix the judge's endpoint (the message below has its address); responses are kept: gymnast reverify "
        "{run} --judge-failed-only scores them without calling the policy again",
        "The judge's endpoint fails; the rollouts' responses are kept.",
        step=2,
        flavors=frozenset({"endpoint"}),
        explains=frozenset({"endpoint_down"}),
        belongs_to=Layer.MODEL_SERVING,
    ),
    KindRule(
        "judge_refused",
        (FailureKind.JUDGE_FAILED,),
        "the judge's endpoint rejects requests: rollouts of {instance} have no verdict",
        "the judge's API key, model name or URL is wrong",
        "correct them (the message below says which); responses are kept: gymnast reverify {run} --judge-failed-only "
        "scores them without calling the policy again",
        "The judge's endpoint returns 401, 403 or 404; the rollouts' responses are kept.",
        step=2,
        flavors=frozenset({"settings"}),
        explains=frozenset({"key_refused", "model_name_wrong"}),
        belongs_to=Layer.CONFIG,
    ),
    KindRule(
        "sandbox_failed",
        (FailureKind.SANDBOX_FAILED,),
        "the sandbox of {instance} fails",
        "the sandbox itself fails, not the program in it: it is not installed, not permitted, or out of resources",
        "read {log}; check that the sandbox works on this host (bwrap, user namespaces), or lower --concurrency",
        "The sandbox for model-written code fails itself.",
        step=4,
    ),
    KindRule(
        "environment_down",
        (FailureKind.ENVIRONMENT_UNREACHABLE,),
        "the resources server {instance} cannot be reached",
        "it is not running, or its address is wrong",
        "gymnast status shows which instances answer; restart it or correct its URL, then --resume",
        "The environment's server does not answer at all.",
        step=3,
    ),
)
