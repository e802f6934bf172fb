"""Failures are data: the one table of kinds, and the detail that travels from where it happened to the record.

Retry, profile exclusion, exit codes, doctor's text and the docs page read this table; nothing else decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec


class Layer(StrEnum):
    """Where in the system a failure belongs."""

    INFRA = "infra"
    MODEL_SERVING = "model_serving"
    CONFIG = "config"
    DATA_SCHEMA = "data_schema"
    VERIFIER = "verifier"
    CACHE_RESUME = "cache_resume"
    THROUGHPUT = "throughput"
    AGENT = "agent"
    SANDBOX = "sandbox"


class Stage(StrEnum):
    """What an attempt was doing."""

    PLAN = "plan"
    AGENT = "agent"
    SEED = "seed"
    MODEL = "model"
    TOOL = "tool"
    VERIFY = "verify"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class FailureKind:
    """One row of the table."""

    name: str
    layer: Layer
    retryable: bool
    hint: str

    @property
    def anchor(self) -> str:
        """Where docs/failures.md explains this kind."""
        return f"docs/failures.md#{self.name}"


def _table(*rows: tuple[str, Layer, str, str]) -> dict[str, FailureKind]:
    return {name: FailureKind(name, layer, retry == AGAIN, hint) for name, layer, retry, hint in rows}


BAD_ROW: Final = "bad_row"
AGAIN: Final = "retryable"
FINAL: Final = "not retryable"


KINDS: Final = _table(
    ("model_unreachable", Layer.MODEL_SERVING, AGAIN, "check that the policy endpoint runs and its URL is right"),
    ("model_timeout", Layer.MODEL_SERVING, AGAIN, "raise model_timeout_s or lower concurrency"),
    ("model_rate_limited", Layer.MODEL_SERVING, AGAIN, "lower concurrency (num_samples_in_parallel)"),
    ("model_overloaded", Layer.MODEL_SERVING, AGAIN, "lower concurrency or add replicas"),
    ("model_error", Layer.MODEL_SERVING, AGAIN, "read the endpoint's own log around this time"),
    ("model_bad_reply", Layer.MODEL_SERVING, AGAIN, "the endpoint does not speak the configured dialect"),
    ("model_rejected", Layer.DATA_SCHEMA, FINAL, "the endpoint refused the request: read the body it sent"),
    ("model_auth", Layer.CONFIG, FINAL, "check policy_api_key"),
    ("model_not_found", Layer.CONFIG, FINAL, "check policy_model_name and the base URL's /v1"),
    (
        "environment_unreachable",
        Layer.INFRA,
        AGAIN,
        "the resources server died or its address is wrong: gymnast status",
    ),
    ("seed_rejected", Layer.DATA_SCHEMA, FINAL, "the row lacks what the environment needs to open a session"),
    ("seed_error", Layer.VERIFIER, AGAIN, "the environment raised while opening the session: read its log"),
    ("seed_timeout", Layer.THROUGHPUT, AGAIN, "opening a session is slow: lower concurrency or raise seed_timeout_s"),
    ("tool_error", Layer.VERIFIER, AGAIN, "a tool of the environment crashed: read its log"),
    ("tool_timeout", Layer.THROUGHPUT, AGAIN, "a tool is slow: lower concurrency or raise tool_timeout_s"),
    ("session_expired", Layer.THROUGHPUT, AGAIN, "the rollout outlived session_ttl_s of its environment"),
    ("verify_rejected", Layer.DATA_SCHEMA, FINAL, "the row does not fit the verifier's request model"),
    ("verifier_error", Layer.VERIFIER, AGAIN, "the verifier raised: read the environment's log"),
    ("verifier_timeout", Layer.VERIFIER, AGAIN, "verification is slow: lower concurrency or raise verify_timeout_s"),
    ("verifier_bad_reply", Layer.VERIFIER, FINAL, "the verifier must answer with a finite number `reward`"),
    ("judge_failed", Layer.VERIFIER, AGAIN, "the judge gave no verdict; the rollout can be re-verified"),
    (
        "sandbox_failed",
        Layer.SANDBOX,
        AGAIN,
        "the sandbox itself failed, not the program in it: read the environment's log, or lower concurrency",
    ),
    ("agent_error", Layer.AGENT, AGAIN, "the agent raised: read its log"),
    ("agent_rejected", Layer.DATA_SCHEMA, FINAL, "the row does not fit the agent's request model"),
    ("agent_unreachable", Layer.INFRA, AGAIN, "the agent server died or its address is wrong: gymnast status"),
    ("agent_not_found", Layer.CONFIG, FINAL, "the row names an agent that is not configured"),
    ("agent_bad_reply", Layer.AGENT, FINAL, "an agent must answer /run with a verify row"),
    ("agent_reported", Layer.AGENT, AGAIN, "the agent reported this failure itself (see failure_class)"),
    ("agent_exited", Layer.AGENT, AGAIN, "the agent's command ended with an error: read the end of its output below"),
    ("agent_timeout", Layer.THROUGHPUT, AGAIN, "raise timeout_s of the agent, or find out what its command waits for"),
    (
        "agent_no_model_call",
        Layer.CONFIG,
        FINAL,
        "the command never reached the policy: it must use OPENAI_BASE_URL or ANTHROPIC_BASE_URL and the key beside it",
    ),
    ("out_of_memory", Layer.INFRA, AGAIN, "the host ran out of memory: lower concurrency (num_samples_in_parallel)"),
    ("worker_died", Layer.INFRA, AGAIN, "a worker process died: read its log"),
    ("instance_died", Layer.INFRA, AGAIN, "a server process died: read its log"),
    (
        "job_timed_out",
        Layer.INFRA,
        AGAIN,
        "the job's time was up; what it had settled is kept: gymnast submit --resume, or a longer --time",
    ),
    ("job_preempted", Layer.INFRA, AGAIN, "the scheduler took the job's place away: gymnast submit --resume"),
    (
        "job_cancelled",
        Layer.INFRA,
        AGAIN,
        "somebody cancelled the job (gymnast cancel, scancel): gymnast submit --resume",
    ),
    ("job_refused", Layer.CONFIG, FINAL, "the worker would not start (exit code 2): gymnast logs RUN says why"),
    ("job_failed", Layer.INFRA, AGAIN, "the job's program ended with an error: gymnast logs RUN"),
    ("node_failed", Layer.INFRA, AGAIN, "the job's node failed; what it had settled is kept: gymnast submit --resume"),
    ("rollout_timeout", Layer.THROUGHPUT, AGAIN, "raise rollout_timeout_s or bound max_steps"),
    ("cancelled", Layer.AGENT, FINAL, "somebody cancelled this rollout (gymnast ctl RUN cancel KEY)"),
    (BAD_ROW, Layer.DATA_SCHEMA, FINAL, "fix the input row"),
    ("unknown", Layer.INFRA, AGAIN, "please report this: every failure should have a kind"),
)

BODY_LIMIT: Final = 4096
"""Characters of an error body that a record keeps."""


class FailureDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known about a failure where it happened; outer layers only add hops to `chain`."""

    kind: str
    stage: Stage
    message: str
    instance: str | None = None
    endpoint: str | None = None
    status: int | None = None
    body: str | None = None
    retry_after_s: float | None = None
    chain: tuple[str, ...] = ()

    def seen_by(self, hop: str) -> FailureDetail:
        """The same failure, one boundary further out."""
        return msgspec.structs.replace(self, chain=(*self.chain, hop))


def kind_named(name: str) -> FailureKind:
    """The table's row for `name`; an unlisted name is `unknown`."""
    return KINDS.get(name, KINDS["unknown"])


def bounded(text: str, limit: int = BODY_LIMIT) -> str:
    """`text`, cut to what a record keeps, saying how much was cut."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"
