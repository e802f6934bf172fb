"""Kind rules about the policy endpoint: one per cause of an endpoint error, with the texts of that table."""

from __future__ import annotations

from typing import Final

from gymnast.doctor.rules.kind_rule import EMPTY, KindRule
from gymnast.types.failure import FailureKind, Layer
from gymnast.wire.endpoint_errors import MEANINGS, Cause

MODEL_KINDS: Final = tuple(kind for kind in FailureKind if kind.startswith("model_"))
"""The kinds whose flavor is a cause."""
_IDS: Final = {
    Cause.CONNECTION_REFUSED: "endpoint_down",
    Cause.RATE_LIMIT: "rate_limited",
    Cause.OVERLOADED: "endpoint_overloaded",
    Cause.SERVER_ERROR: "endpoint_error",
    Cause.HTML_BODY: "not_json",
    Cause.NOT_AN_ANSWER: "not_json",
    Cause.MODEL_NAME: "model_name_wrong",
    Cause.NO_SUCH_PATH: "base_url_wrong",
    Cause.TOOL_SCHEMA: "tool_grammar",
    Cause.UNRECOGNISED: "request_refused",
}
"""Rule ids that are not the cause's own name."""
_STEPS: Final = {Cause.TOOL_SCHEMA: 4, Cause.UNRECOGNISED: 8}
_USUAL_KIND: Final = {
    Cause.TIMEOUT: FailureKind.MODEL_OVERLOADED,
    Cause.UNRECOGNISED: FailureKind.MODEL_REJECTED,
}
"""Of causes whose kind depends on the status: it gives the rule its layer."""
_OWN_RULES: Final = {
    Cause.TIMEOUT: frozenset({FailureKind.MODEL_TIMEOUT}),
    Cause.CONNECTION_LOST: frozenset({FailureKind.MODEL_BAD_REPLY}),
}
"""Kinds for which a cause has a rule of its own, below."""


def _rule_of(cause: Cause) -> KindRule:
    meaning = MEANINGS[cause]
    kinds = [kind for kind in MODEL_KINDS if kind not in _OWN_RULES.get(cause, ())]
    kinds.sort(key=lambda kind: kind != (meaning.kind or _USUAL_KIND[cause]))
    about = meaning.symptom.replace("the endpoint {endpoint}", "the endpoint").replace("the URL {endpoint}", "the URL")
    about = about.replace("{endpoint}", "the endpoint")
    return KindRule(
        _IDS.get(cause, cause.value),
        tuple(kinds),
        meaning.symptom,
        meaning.reason,
        meaning.action,
        f"{about[0].upper()}{about[1:]}.",
        step=_STEPS.get(cause, 2),
        flavors=frozenset({cause.value}),
        belongs_to=Layer.CONFIG if cause is Cause.CONTEXT_OVERFLOW else None,
    )


SERVING: Final = (
    *(_rule_of(cause) for cause in Cause),
    KindRule(
        "model_slow",
        (FailureKind.MODEL_TIMEOUT,),
        "model calls to {endpoint} exceed their deadline",
        "the endpoint is too slow for the deadline at this concurrency, or hangs",
        "lower --concurrency, or raise the deadline (the model's timeout_s, the agent's model_timeout_s); then run "
        "again with --resume",
        "Model calls take longer than the model's `timeout_s` or the agent's `model_timeout_s`.",
        flavors=frozenset({Cause.TIMEOUT.value}),
    ),
    KindRule(
        "reply_cut",
        (FailureKind.MODEL_BAD_REPLY,),
        "replies of the endpoint {endpoint} are cut off",
        "the server died while replying, or a proxy in front of it cuts long or slow replies",
        "check the server's and the proxy's logs (time and size limits); bypass the proxy: gymnast check "
        "endpoint URL; then --resume",
        "The endpoint returns an incomplete reply.",
        flavors=frozenset({Cause.CONNECTION_LOST.value}),
    ),
    KindRule(
        "empty_provider_body",
        (FailureKind.MODEL_ERROR,),
        "the endpoint {endpoint} returns an internal error without a message",
        "the provider does not say what went wrong, so nothing on this side can know",
        "enable logging on the provider's side (vLLM: --enable-log-requests --uvicorn-log-level debug) and repeat one "
        "request",
        "The endpoint returns an internal error with an empty body.",
        flavors=EMPTY,
    ),
    KindRule(
        "rollouts_truncated",
        (FailureKind.TRUNCATED,),
        "rollouts failed because they were truncated (--truncated fail)",
        "max_output_tokens, the model's context or the agent's step limit is too small for these tasks",
        "raise the limit, then collect again with --resume --retry-failed; or start over with --truncated score",
        "Truncated rollouts fail because the run was collected with `--truncated fail`.",
        step=6,
    ),
)
