"""The parts of a record that the index needs, as structs: everything else in a line is skipped while it is decoded.

Values that authors or foreign servers may have written in any form are `Any`; texts that only a search needs stay raw.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.types.encoding import encode_json
from gymnast.types.task import (
    AGENT_REF,
    FAILURE_CLASS,
    FAILURE_TERMINAL,
    MASK,
    PARAMS,
    ROLLOUT_INDEX,
    TASK_INDEX,
)
from gymnast.types.tokens import LEDGER
from gymnast.types.usage import CALL_CAPTURE, MODEL_USAGE

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject


class Params(msgspec.Struct, gc=False):
    """What the policy was asked."""

    input: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    temperature: Any = None
    top_p: Any = None
    max_output_tokens: Any = None
    reasoning: Any = None


class Tokens(msgspec.Struct, gc=False):
    """The tokens of a response, in either API's words."""

    input_tokens: Any = None
    output_tokens: Any = None
    total_tokens: Any = None
    prompt_tokens: Any = None
    completion_tokens: Any = None


class Response(msgspec.Struct, gc=False):
    """What the policy answered."""

    output: msgspec.Raw = msgspec.Raw()
    usage: Tokens | None = None
    incomplete_details: Any = None
    status: Any = None
    model: Any = None
    created_at: Any = None
    completed_at: Any = None
    temperature: Any = None
    top_p: Any = None
    max_output_tokens: Any = None
    reasoning: Any = None


class Usage(msgspec.Struct, gc=False):
    """What the model calls of a rollout took."""

    calls: Any = None
    latency_ms: Any = None
    cost: Any = None
    output_tokens: Any = None
    input_tokens: Any = None


class Capture(msgspec.Struct, gc=False):
    """What a proxy measured."""

    metrics: Any = None


class Failure(msgspec.Struct, gc=False):
    """Why an attempt failed."""

    kind: Any = None
    stage: Any = None
    started_at: Any = None
    seconds: Any = None


class Agent(msgspec.Struct, gc=False):
    """The agent that a rollout belongs to."""

    name: Any = None


class Ignored(msgspec.Struct, gc=False):
    """Any object; its content is skipped."""


SCALAR: Final[Any] = int | float | bool | str | None
FIXED_FIELDS: Final[dict[str, Any]] = {
    TASK_INDEX: Any,
    ROLLOUT_INDEX: Any,
    "reward": Any,
    PARAMS: Params | None,
    "response": Response | None,
    AGENT_REF: Agent | None,
    MODEL_USAGE: Usage | None,
    CALL_CAPTURE: Capture | None,
    LEDGER: Ignored | None,
    "failure": Failure | None,
    FAILURE_CLASS: Any,
    FAILURE_TERMINAL: Any,
    MASK: Any,
}
"""Fields that every reader of lines knows, with their types."""


def line_struct(fields: dict[str, Any], *, forbid_unknown: bool) -> type[msgspec.Struct]:
    """A struct for lines with these fields, in this order. What a line does not have is UNSET."""
    names = [f"f{number}" for number in range(len(fields))]
    return msgspec.defstruct(
        "Line",
        [
            (name, kind | msgspec.UnsetType if kind is not Any else Any, msgspec.UNSET)
            for name, kind in zip(names, fields.values(), strict=True)
        ],
        rename=dict(zip(names, fields, strict=True)),
        forbid_unknown_fields=forbid_unknown,
        gc=False,
    )


def as_kind(value: Any, kind: Any) -> Any:
    """A decoded value in the form that the struct of lines has."""
    if kind is Any or value is msgspec.UNSET or value is None:
        return value
    if kind is msgspec.Raw or kind is SCALAR:
        return value if isinstance(value, int | float | str) else None
    struct = kind.__args__[0]
    return _as_struct(value, struct) if isinstance(value, dict) else None


def _as_struct(value: JsonObject, struct: Any) -> Any:
    fields = {}
    for info in msgspec.structs.fields(struct):
        own = value.get(info.name)
        if info.type is msgspec.Raw:
            own = msgspec.Raw(_encode(own)) if own is not None else msgspec.Raw()
        elif info.type == Tokens | None:
            own = _as_struct(own, Tokens) if isinstance(own, dict) else None
        fields[info.name] = own
    return struct(**fields)


def _encode(value: Any) -> bytes:
    try:
        return encode_json(value)
    except (TypeError, ValueError, RecursionError):
        return b'"(cannot be shown)"'
