"""Failures are data: the one table of failure kinds, and the detail that travels from where it happened to the record.

Retries, the circuit breaker, profiles, exit codes, doctor and docs/failures.md all read this table. The values of
`FailureKind` are written to files that other programs read: add kinds, never rename them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

import msgspec

from gymnast.types.encoding import printable, show


class Layer(StrEnum):
    """The part of the system a failure belongs to."""

    INFRA = "infra"
    MODEL_SERVING = "model_serving"
    CONFIG = "config"
    DATA_SCHEMA = "data_schema"
    VERIFIER = "verifier"
    CACHE_RESUME = "cache_resume"
    THROUGHPUT = "throughput"
    AGENT = "agent"
    SANDBOX = "sandbox"


LAYERS: Final = {
    Layer.INFRA: "processes, hosts, network, files",
    Layer.MODEL_SERVING: "the policy endpoint: startup, readiness, throughput",
    Layer.CONFIG: "names, keys and addresses in the configuration",
    Layer.DATA_SCHEMA: "rows that do not match what reads them",
    Layer.VERIFIER: "environments: sessions, tools, scoring, judges",
    Layer.CACHE_RESUME: "files of earlier runs",
    Layer.THROUGHPUT: "deadlines and concurrency",
    Layer.AGENT: "the agent's code",
    Layer.SANDBOX: "where model-written code runs",
}
"""What belongs to each layer."""


class Stage(StrEnum):
    """What an attempt was doing."""

    PLAN = "plan"
    AGENT = "agent"
    SEED = "seed"
    MODEL = "model"
    TOOL = "tool"
    VERIFY = "verify"
    CLOSE = "close"


class FailureKind(StrEnum):
    """Every way an attempt or a job can fail. A name that is not listed, e.g. from a newer Gymnast, is `UNKNOWN`."""

    MODEL_UNREACHABLE = "model_unreachable"
    MODEL_TIMEOUT = "model_timeout"
    MODEL_RATE_LIMITED = "model_rate_limited"
    MODEL_OVERLOADED = "model_overloaded"
    MODEL_ERROR = "model_error"
    MODEL_BAD_REPLY = "model_bad_reply"
    MODEL_REJECTED = "model_rejected"
    MODEL_AUTH = "model_auth"
    MODEL_NOT_FOUND = "model_not_found"
    MODEL_QUOTA = "model_quota"
    MODEL_MISCONFIGURED = "model_misconfigured"
    ENVIRONMENT_UNREACHABLE = "environment_unreachable"
    SEED_REJECTED = "seed_rejected"
    SEED_ERROR = "seed_error"
    SEED_TIMEOUT = "seed_timeout"
    TOOL_ERROR = "tool_error"
    TOOL_TIMEOUT = "tool_timeout"
    SESSION_EXPIRED = "session_expired"
    VERIFY_REJECTED = "verify_rejected"
    VERIFIER_ERROR = "verifier_error"
    VERIFIER_TIMEOUT = "verifier_timeout"
    VERIFIER_BAD_REPLY = "verifier_bad_reply"
    JUDGE_FAILED = "judge_failed"
    USER_FAILED = "user_failed"
    SANDBOX_FAILED = "sandbox_failed"
    AGENT_ERROR = "agent_error"
    AGENT_REJECTED = "agent_rejected"
    AGENT_UNREACHABLE = "agent_unreachable"
    AGENT_NOT_FOUND = "agent_not_found"
    AGENT_BAD_REPLY = "agent_bad_reply"
    AGENT_REPORTED = "agent_reported"
    AGENT_EXITED = "agent_exited"
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_NO_MODEL_CALL = "agent_no_model_call"
    AGENT_NO_TOOLS = "agent_no_tools"
    OUT_OF_MEMORY = "out_of_memory"
    WORKER_DIED = "worker_died"
    INSTANCE_DIED = "instance_died"
    JOB_TIMED_OUT = "job_timed_out"
    JOB_PREEMPTED = "job_preempted"
    JOB_CANCELLED = "job_cancelled"
    JOB_REFUSED = "job_refused"
    JOB_FAILED = "job_failed"
    NODE_FAILED = "node_failed"
    ROLLOUT_TIMEOUT = "rollout_timeout"
    TRUNCATED = "truncated"
    CANCELLED = "cancelled"
    BAD_ROW = "bad_row"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> FailureKind | None:
        return cls.UNKNOWN if isinstance(value, str) else None


class Recovery(Enum):
    """What can make a failed rollout succeed."""

    FIX = auto()
    """Only a fix: it is not retried."""
    RETRY = auto()
    """A retry, perhaps; if nothing else ever happens, the run gives up."""
    TIME = auto()
    """A retry later: it may pass without a fix, so it alone never ends a run."""
    OUTAGE = auto()
    """The same, for something that does not answer at all: a series of these opens the circuit breaker."""


@dataclass(frozen=True, slots=True)
class KindInfo:
    """A row of the table."""

    name: FailureKind
    layer: Layer
    recovery: Recovery
    hint: str

    @property
    def retryable(self) -> bool:
        return self.recovery is not Recovery.FIX

    @property
    def anchor(self) -> str:
        """Where docs/failures.md explains this kind."""
        return f"docs/failures.md#{self.name}"


def _table(*rows: tuple[FailureKind, Layer, Recovery, str]) -> dict[FailureKind, KindInfo]:
    return {row[0]: KindInfo(*row) for row in rows}


_K, _L, _R = FailureKind, Layer, Recovery

KINDS: Final = _table(
    (_K.MODEL_UNREACHABLE, _L.MODEL_SERVING, _R.OUTAGE, "check that the policy endpoint runs and its URL is right"),
    (_K.MODEL_TIMEOUT, _L.MODEL_SERVING, _R.TIME, "raise model_timeout_s or lower concurrency"),
    (_K.MODEL_RATE_LIMITED, _L.MODEL_SERVING, _R.TIME, "lower concurrency (num_samples_in_parallel)"),
    (_K.MODEL_OVERLOADED, _L.MODEL_SERVING, _R.OUTAGE, "lower concurrency or add replicas"),
    (_K.MODEL_ERROR, _L.MODEL_SERVING, _R.RETRY, "read the endpoint's log around this time"),
    (_K.MODEL_BAD_REPLY, _L.MODEL_SERVING, _R.RETRY, "check the URL and --model-type: replies have another form"),
    (_K.MODEL_REJECTED, _L.DATA_SCHEMA, _R.FIX, "the endpoint refused the request: read the body it sent"),
    (_K.MODEL_AUTH, _L.CONFIG, _R.FIX, "check the key of the model server (policy_api_key)"),
    (_K.MODEL_NOT_FOUND, _L.CONFIG, _R.FIX, "check policy_model_name and the base URL's /v1"),
    (_K.MODEL_QUOTA, _L.CONFIG, _R.FIX, "credits or quota are used up, and waiting does not help: add credits"),
    (
        *(_K.MODEL_MISCONFIGURED, _L.CONFIG, _R.FIX),
        "the endpoint, or its URL, is not set up for these requests: its message names the flag, parameter or address",
    ),
    (
        *(_K.ENVIRONMENT_UNREACHABLE, _L.INFRA, _R.OUTAGE),
        "the resources server died or its address is wrong: gymnast status",
    ),
    (_K.SEED_REJECTED, _L.DATA_SCHEMA, _R.FIX, "the row lacks what the environment needs to open a session"),
    (_K.SEED_ERROR, _L.VERIFIER, _R.RETRY, "the environment raised while opening the session: read its log"),
    (_K.SEED_TIMEOUT, _L.THROUGHPUT, _R.TIME, "opening a session is slow: lower concurrency or raise seed_timeout_s"),
    (_K.TOOL_ERROR, _L.VERIFIER, _R.RETRY, "a tool of the environment crashed: read its log"),
    (_K.TOOL_TIMEOUT, _L.THROUGHPUT, _R.TIME, "a tool is slow: lower concurrency or raise tool_timeout_s"),
    (_K.SESSION_EXPIRED, _L.THROUGHPUT, _R.TIME, "the rollout outlived session_ttl_s of its environment"),
    (_K.VERIFY_REJECTED, _L.DATA_SCHEMA, _R.FIX, "the row does not match the verifier's request model"),
    (_K.VERIFIER_ERROR, _L.VERIFIER, _R.RETRY, "the verifier raised: read the environment's log"),
    (_K.VERIFIER_TIMEOUT, _L.VERIFIER, _R.TIME, "verification is slow: lower concurrency or raise verify_timeout_s"),
    (_K.VERIFIER_BAD_REPLY, _L.VERIFIER, _R.FIX, "the verifier must return a finite number as `reward`"),
    (_K.JUDGE_FAILED, _L.VERIFIER, _R.TIME, "the judge gave no verdict; the rollout can be re-verified"),
    (_K.USER_FAILED, _L.INFRA, _R.TIME, "the simulated user failed, not the policy: check the user's model"),
    (
        *(_K.SANDBOX_FAILED, _L.SANDBOX, _R.RETRY),
        "the sandbox itself failed, not the program in it: read the environment's log, or lower concurrency",
    ),
    (_K.AGENT_ERROR, _L.AGENT, _R.RETRY, "the agent raised: read its log"),
    (_K.AGENT_REJECTED, _L.DATA_SCHEMA, _R.FIX, "the row does not match the agent's request model"),
    (_K.AGENT_UNREACHABLE, _L.INFRA, _R.OUTAGE, "the agent server died or its address is wrong: gymnast status"),
    (_K.AGENT_NOT_FOUND, _L.CONFIG, _R.FIX, "the row names an agent that is not configured"),
    (_K.AGENT_BAD_REPLY, _L.AGENT, _R.FIX, "an agent must reply to /run with a verify row"),
    (_K.AGENT_REPORTED, _L.AGENT, _R.RETRY, "the agent reported this failure itself (see failure_class)"),
    (_K.AGENT_EXITED, _L.AGENT, _R.RETRY, "the agent's command exited with an error: read the end of its output below"),
    (_K.AGENT_TIMEOUT, _L.THROUGHPUT, _R.RETRY, "raise timeout_s of the agent, or find out what its command waits for"),
    (
        *(_K.AGENT_NO_MODEL_CALL, _L.CONFIG, _R.FIX),
        "the command never called the policy: it must use OPENAI_BASE_URL or ANTHROPIC_BASE_URL with the matching key",
    ),
    (
        *(_K.AGENT_NO_TOOLS, _L.AGENT, _R.RETRY),
        "the program never offered the environment's tools to the policy: check how it connects to GYMNAST_MCP_URL",
    ),
    (_K.OUT_OF_MEMORY, _L.INFRA, _R.TIME, "the host ran out of memory: lower concurrency (num_samples_in_parallel)"),
    (_K.WORKER_DIED, _L.INFRA, _R.TIME, "a worker process died: read its log"),
    (_K.INSTANCE_DIED, _L.INFRA, _R.OUTAGE, "a server process died: read its log"),
    (
        *(_K.JOB_TIMED_OUT, _L.INFRA, _R.RETRY),
        "the job reached its time limit; finished rollouts are kept: gymnast submit --resume, or a longer --time",
    ),
    (_K.JOB_PREEMPTED, _L.INFRA, _R.RETRY, "the scheduler preempted the job: gymnast submit --resume"),
    (
        *(_K.JOB_CANCELLED, _L.INFRA, _R.RETRY),
        "the job was cancelled (gymnast cancel, scancel): gymnast submit --resume",
    ),
    (_K.JOB_REFUSED, _L.CONFIG, _R.FIX, "the worker refused to start (exit code 2): gymnast logs RUN says why"),
    (_K.JOB_FAILED, _L.INFRA, _R.RETRY, "the job's program exited with an error: gymnast logs RUN"),
    (_K.NODE_FAILED, _L.INFRA, _R.RETRY, "the job's node failed; finished rollouts are kept: gymnast submit --resume"),
    (_K.ROLLOUT_TIMEOUT, _L.THROUGHPUT, _R.TIME, "raise rollout_timeout_s or bound max_steps"),
    (
        *(_K.TRUNCATED, _L.CONFIG, _R.FIX),
        "raise max_output_tokens, the context or the agent's step limit, or count them: --truncated score",
    ),
    (_K.CANCELLED, _L.AGENT, _R.FIX, "this rollout was cancelled by hand (gymnast ctl RUN cancel KEY)"),
    (_K.BAD_ROW, _L.DATA_SCHEMA, _R.FIX, "fix the input row"),
    (_K.UNKNOWN, _L.INFRA, _R.RETRY, "please report this: every failure should have a kind"),
)

BODY_LIMIT: Final = 4096
"""Characters of an error body that a record keeps."""


class FailureDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known about a failure where it happened; outer layers only add hops to `chain`."""

    kind: FailureKind
    stage: Stage
    message: str
    instance: str | None = None
    endpoint: str | None = None
    status: int | None = None
    body: str | None = None
    retry_after_s: float | None = None
    chain: tuple[str, ...] = ()
    cause: str | None = None
    """For failures of an endpoint: what its message means (`gymnast.wire.endpoint_errors.Cause`)."""
    certainty: str | None = None
    """What the cause rests on: `known` words of a server, `words` that many share, or only the `status`."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, FailureKind):  # from a plugin that is not type-checked
            msgspec.structs.force_setattr(self, "kind", FailureKind(self.kind))
        for name in ("message", "instance", "endpoint", "body"):  # texts of models and programs: they must be encodable
            text = getattr(self, name)
            if isinstance(text, str) and (fixed := printable(text)) is not text:
                msgspec.structs.force_setattr(self, name, fixed)

    def add_hop(self, hop: str) -> FailureDetail:
        """The same failure, one boundary further out."""
        return msgspec.structs.replace(self, chain=(*self.chain, hop))


def kind_named(name: str) -> KindInfo:
    """The table's row for `name`; an unlisted name is `unknown`."""
    return KINDS[FailureKind(name)]


def message_of(error: BaseException, limit: int = 300) -> str:
    """An exception's own text, bounded; its representation if it has none that can be shown."""
    try:
        return bounded(printable(str(error)), limit)
    except Exception:  # noqa: BLE001 - the author's code
        return show(error, limit)


def bounded(text: str, limit: int = BODY_LIMIT) -> str:
    """`text`, cut to what a record keeps, saying how much was cut."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"
