"""The rules for failures of certain kinds: their layer, cause, and what to do. Most are in tables/kinds.toml.

The causes of endpoint errors have a rule each, with the texts of `wire.endpoint_errors`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gymnast.doctor.findings import Confidence
from gymnast.doctor.load_table import load_rows
from gymnast.types.failure import KINDS, FailureKind, Layer
from gymnast.wire.endpoint_errors import MEANINGS, Cause


class KindRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table of kind rules."""

    id: str
    kinds: tuple[FailureKind, ...]
    symptom: str
    cause: str
    action: str
    about: str
    step: int = 2
    flavors: frozenset[str] | None = None
    """None matches any."""
    confidence: Confidence = Confidence.HIGH
    explains: frozenset[str] = frozenset()
    belongs_to: Layer | None = None
    """The layer, if it is not that of the first kind."""

    @property
    def layer(self) -> Layer:
        return self.belongs_to or KINDS[self.kinds[0]].layer


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
"""Kinds for which a cause has an entry in the table."""


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


TABLE: Final = (*map(_rule_of, Cause), *load_rows("kinds", KindRule).values())
"""All kind rules."""
