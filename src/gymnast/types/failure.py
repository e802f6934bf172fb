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


def _table(*kinds: FailureKind) -> dict[str, FailureKind]:
    return {kind.name: kind for kind in kinds}


KINDS: Final = _table(
    FailureKind(
        "model_unreachable", Layer.MODEL_SERVING, True, "check that the policy endpoint runs and its URL is right"
    ),
    FailureKind("model_timeout", Layer.MODEL_SERVING, True, "raise model_timeout_s or lower concurrency"),
    FailureKind("model_rate_limited", Layer.MODEL_SERVING, True, "lower concurrency (num_samples_in_parallel)"),
    FailureKind("model_overloaded", Layer.MODEL_SERVING, True, "lower concurrency or add replicas"),
    FailureKind("model_error", Layer.MODEL_SERVING, True, "read the endpoint's own log around this time"),
    FailureKind("model_bad_reply", Layer.MODEL_SERVING, True, "the endpoint does not speak the configured dialect"),
    FailureKind("model_rejected", Layer.DATA_SCHEMA, False, "the endpoint refused the request: read the body it sent"),
    FailureKind("model_auth", Layer.CONFIG, False, "check policy_api_key"),
    FailureKind("model_not_found", Layer.CONFIG, False, "check policy_model_name and the base URL's /v1"),
    FailureKind(
        "environment_unreachable",
        Layer.INFRA,
        True,
        "the resources server died or its address is wrong: gymnast status",
    ),
    FailureKind(
        "seed_rejected", Layer.DATA_SCHEMA, False, "the row lacks what the environment needs to open a session"
    ),
    FailureKind("seed_error", Layer.VERIFIER, True, "the environment raised while opening the session: read its log"),
    FailureKind(
        "seed_timeout", Layer.THROUGHPUT, True, "opening a session is slow: lower concurrency or raise seed_timeout_s"
    ),
    FailureKind("tool_error", Layer.VERIFIER, True, "a tool of the environment crashed: read its log"),
    FailureKind("tool_timeout", Layer.THROUGHPUT, True, "a tool is slow: lower concurrency or raise tool_timeout_s"),
    FailureKind("session_expired", Layer.THROUGHPUT, True, "the rollout outlived session_ttl_s of its environment"),
    FailureKind("verify_rejected", Layer.DATA_SCHEMA, False, "the row does not fit the verifier's request model"),
    FailureKind("verifier_error", Layer.VERIFIER, True, "the verifier raised: read the environment's log"),
    FailureKind(
        "verifier_timeout", Layer.VERIFIER, True, "verification is slow: lower concurrency or raise verify_timeout_s"
    ),
    FailureKind("verifier_bad_reply", Layer.VERIFIER, False, "the verifier must answer with a finite number `reward`"),
    FailureKind(
        "judge_failed", Layer.VERIFIER, True, "the judge model could not be asked; the rollout can be re-verified"
    ),
    FailureKind("agent_error", Layer.AGENT, True, "the agent raised: read its log"),
    FailureKind("agent_rejected", Layer.DATA_SCHEMA, False, "the row does not fit the agent's request model"),
    FailureKind(
        "agent_unreachable", Layer.INFRA, True, "the agent server died or its address is wrong: gymnast status"
    ),
    FailureKind("agent_not_found", Layer.CONFIG, False, "the row names an agent that is not configured"),
    FailureKind("agent_bad_reply", Layer.AGENT, False, "an agent must answer /run with a verify row"),
    FailureKind("agent_reported", Layer.AGENT, True, "the agent reported this failure itself (see failure_class)"),
    FailureKind("rollout_timeout", Layer.THROUGHPUT, True, "raise rollout_timeout_s or bound max_steps"),
    FailureKind("bad_row", Layer.DATA_SCHEMA, False, "fix the input row"),
    FailureKind("unknown", Layer.INFRA, True, "please report this: every failure should have a kind"),
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
