"""Kind rules of environments: rows they refuse, verifiers, tools, sessions, judges, sandboxes. Data only."""

from __future__ import annotations

from typing import Final

from gymnast.doctor.findings import Confidence
from gymnast.doctor.rules.kind_row import EMPTY, SAID, KindRow
from gymnast.types.failure import Layer

BOUNDARY: Final = (
    "run one of them again with the boundaries visible: the same collect command with --limit 1 and another --output, "
    "plus ++global_aiohttp_client_request_debug=True, and read the innermost [request-boundary] line"
)

ENVIRONMENT: Final = (
    KindRow(
        "verify_schema",
        Layer.DATA_SCHEMA,
        ("verify_rejected", "verifier_rejected"),
        "{instance} refuses rows at /verify (422)",
        "the rows do not have the fields that the environment's task model asks for",
        "compare row and model field by field: gymnast check rows DATA --against {instance}; correct the rows, then "
        "collect them again",
        "Servers are ready and /verify answers 422.",
        step=8,
    ),
    KindRow(
        "seed_schema",
        Layer.DATA_SCHEMA,
        ("seed_rejected",),
        "{instance} refuses rows when their session is opened (422)",
        "the rows do not have the fields that the environment's task model asks for",
        "compare row and model field by field: gymnast check rows DATA --against {instance}; correct the rows, then "
        "collect them again",
        "/seed_session answers 4xx.",
        step=8,
    ),
    KindRow(
        "agent_schema",
        Layer.DATA_SCHEMA,
        ("agent_rejected",),
        "the agent {instance} refuses rows (422)",
        "the rows do not have what the agent's request model asks for",
        "correct the fields named below (gymnast data validate checks a file), then collect them again",
        "/run answers 4xx.",
        step=8,
    ),
    KindRow(
        "verifier_exception",
        Layer.VERIFIER,
        ("verifier_error",),
        "{instance} raises while verifying (500)",
        "an exception in the environment's verifier; the first real one is quoted below",
        "mend the verifier at the place the traceback in {log} names, then --resume --retry-failed",
        "/verify answers 500 and says which exception.",
        step=7,
        flavors=SAID,
    ),
    KindRow(
        "inner_500_no_body",
        Layer.VERIFIER,
        ("verifier_error", "agent_error", "tool_error"),
        "an inner server ({instance}) answers 500 without a body",
        "the real error was lost on its way out: only the innermost boundary shows it",
        BOUNDARY,
        "Nested 500s arrive without the body of the real error.",
        step=7,
        flavors=EMPTY,
    ),
    KindRow(
        "verifier_slow",
        Layer.VERIFIER,
        ("verifier_timeout",),
        "verification by {instance} runs into its deadline",
        "the verifier computes or waits too long for verify_timeout_s at this concurrency",
        "raise verify_timeout_s of the agent or lower --concurrency; if it computes, runs_in: child helps",
        "/verify takes longer than `verify_timeout_s`.",
        step=7,
    ),
    KindRow(
        "verifier_reply",
        Layer.VERIFIER,
        ("verifier_bad_reply",),
        "{instance} answers /verify with something that has no finite reward",
        "the verifier returns NaN, nothing, or another shape",
        "return a finite number `reward`; gymnast check env finds such cases before a run",
        "The reply of /verify has no finite `reward`.",
        step=7,
    ),
    KindRow(
        "seed_exception",
        Layer.VERIFIER,
        ("seed_error",),
        "{instance} raises while opening sessions (500)",
        "an exception in the environment's `open`; the first real one is quoted below",
        "mend it at the place the traceback in {log} names, then --resume --retry-failed",
        "/seed_session answers 500.",
        step=7,
        flavors=SAID | EMPTY,
    ),
    KindRow(
        "work_process_died",
        Layer.INFRA,
        ("verifier_error", "seed_error", "tool_error", "agent_error"),
        "processes that work for {instance} end before they have a result",
        "memory (a limit of the job, of a cgroup, or ulimit -v), a signal, or a crash in native code; not the logic of "
        "the environment",
        "see whether memory ran out (dmesg -T, ulimit -a, sacct --format=MaxRSS) and what the command printed; ask for "
        "more memory or lower --concurrency, and --resume --retry-failed",
        "A worker process of an environment ends by itself.",
        step=1,
        flavors=frozenset({"crashed"}),
        confidence=Confidence.MEDIUM,
        explains=frozenset({"verifier_exception", "agent_exception"}),
    ),
    KindRow(
        "seed_slow",
        Layer.THROUGHPUT,
        ("seed_timeout",),
        "opening sessions of {instance} runs into its deadline",
        "the environment opens sessions too slowly at this concurrency",
        "lower --concurrency or raise seed_timeout_s of the agent",
        "/seed_session takes longer than `seed_timeout_s`.",
        step=7,
    ),
    KindRow(
        "tool_exception",
        Layer.VERIFIER,
        ("tool_error",),
        "a tool of {instance} crashes",
        "an exception in the environment's tool; the first real one is quoted below",
        "mend it at the place the traceback in {log} names, then --resume --retry-failed",
        "A tool answers 500.",
        step=4,
        flavors=SAID,
    ),
    KindRow(
        "tool_hang",
        Layer.THROUGHPUT,
        ("tool_timeout",),
        "a tool of {instance} does not answer in time",
        "the tool waits for something that does not come, or is slow; this is no matter of model settings",
        "first see that {instance} owns the tool and has loaded what it needs (gymnast check env), then lower "
        "--concurrency or raise tool_timeout_s of the agent",
        "A tool takes longer than `tool_timeout_s`.",
        step=4,
    ),
    KindRow(
        "session_expired",
        Layer.THROUGHPUT,
        ("session_expired",),
        "rollouts outlive their session in {instance}",
        "a rollout takes longer than session_ttl_s, mostly because the policy is slow",
        "raise session_ttl_s of {instance} or lower --concurrency, then --resume",
        "A session is gone before its rollout ends.",
        step=4,
    ),
    KindRow(
        "judge_failed",
        Layer.VERIFIER,
        ("judge_failed",),
        "the judge of {instance} gives no verdict",
        "what the judge says is no verdict, or the environment could not ask it; its words are quoted below",
        "see that the judge follows its prompt (another model, more max_output_tokens) and can be asked; replies are "
        "kept: gymnast reverify {run} scores them again",
        "The judge gives no verdict; the rollouts' replies are kept.",
        step=7,
        flavors=frozenset({""}),
    ),
    KindRow(
        "judge_down",
        Layer.MODEL_SERVING,
        ("judge_failed",),
        "the judge's endpoint fails: rollouts of {instance} have no verdict",
        "the model that judges cannot be reached, is overloaded, or answers with errors; the policy is well",
        "start or mend the judge's endpoint (the message below has its address); replies are kept: gymnast reverify "
        "{run} --judge-failed-only scores them without asking the policy again",
        "The judge's endpoint fails; the rollouts' replies are kept.",
        step=2,
        flavors=frozenset({"endpoint"}),
        explains=frozenset({"endpoint_down"}),
    ),
    KindRow(
        "judge_refused",
        Layer.CONFIG,
        ("judge_failed",),
        "the judge's endpoint refuses: rollouts of {instance} have no verdict",
        "the judge's API key, model name or URL is wrong",
        "correct them (the message below says which); the replies are kept: gymnast reverify {run} --judge-failed-only "
        "scores them without asking the policy again",
        "The judge's endpoint answers 401, 403 or 404; the rollouts' replies are kept.",
        step=2,
        flavors=frozenset({"settings"}),
        explains=frozenset({"key_refused", "model_name_wrong"}),
    ),
    KindRow(
        "sandbox_failed",
        Layer.SANDBOX,
        ("sandbox_failed",),
        "the sandbox of {instance} fails",
        "the sandbox itself fails, not the program in it: it is not installed, not permitted, or out of room",
        "read {log}; see that the sandbox works on this host (bwrap, user namespaces), or lower --concurrency",
        "Where model-written code runs fails itself.",
        step=4,
    ),
    KindRow(
        "environment_down",
        Layer.INFRA,
        ("environment_unreachable",),
        "the resources server {instance} cannot be reached",
        "it is not up, died, or its address is wrong",
        "gymnast status shows which instances answer; start it again or correct its URL, then --resume",
        "The environment's server gives no answer at all.",
        step=3,
    ),
)
