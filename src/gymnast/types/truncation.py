"""Which rollouts were truncated, from their records: the one definition that every summary and trainer uses. Pure.

A record of Gymnast or NeMo Gym shows it in one of three ways:

- `response.incomplete_details` gives a reason: the output limit or a full context (`max_output_tokens`), or a limit of
  the agent (`max_model_calls`, `timeout`, …). A response that a content filter ended is not truncated.
- An episode has `truncated: true` next to `terminated`.
- The trajectory ends with a tool call without its output, after calls that have theirs: the agent reached `max_steps`.
  A single call without output is not truncated, because in some environments the call is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

TruncatedPolicy = Literal["score", "mask", "fail"]
"""What happens to truncated rollouts: they keep their score, are masked for trainers as well, or fail."""
TRUNCATED_POLICIES: Final[tuple[TruncatedPolicy, ...]] = get_args(TruncatedPolicy)


class Truncation(StrEnum):
    """What truncated a rollout."""

    LENGTH = "length"
    """The output limit, or a full context."""
    AGENT_LIMIT = "agent_limit"
    """The agent's limit of steps, model calls or time."""


_REASONS: Final[Mapping[Any, Truncation | None]] = {
    "content_filter": None,
    "max_model_calls": Truncation.AGENT_LIMIT,
    "max_tool_calls": Truncation.AGENT_LIMIT,
    "max_steps": Truncation.AGENT_LIMIT,
    "max_turns": Truncation.AGENT_LIMIT,
    "timeout": Truncation.AGENT_LIMIT,
}
"""Other reasons, including `max_output_tokens`, are about length."""
_OUTPUT: Final = "function_call_output"
_MAPPING: Final = (dict, Mapping)
"""Nearly all are dicts, which is checked much faster."""


class _Item(msgspec.Struct):
    type: Any = None


_ITEMS: Final = msgspec.json.Decoder(list[_Item])


def truncation_of(record: Mapping[str, Any]) -> Truncation | None:
    """What truncated the rollout of a record, or None."""
    response = record.get("response")
    if not isinstance(response, _MAPPING):
        response = {}
    output = response.get("output")
    types = [item.get("type") for item in output if isinstance(item, _MAPPING)] if isinstance(output, list) else []
    return (
        truncation_of_reason(response.get("incomplete_details"))
        or truncation_of_episode(record.get("terminated"), record.get("truncated"))
        or truncation_of_types(types)
    )


def truncation_of_reason(incomplete_details: Any) -> Truncation | None:
    """What the `incomplete_details` of a response say."""
    if not incomplete_details or not isinstance(incomplete_details, _MAPPING):
        return None
    reason = incomplete_details.get("reason")
    return _REASONS.get(reason, Truncation.LENGTH) if isinstance(reason, str) else Truncation.LENGTH


def truncation_of_episode(terminated: Any, truncated: Any) -> Truncation | None:
    """What the fields of an episode say. Both must be booleans: authors may use the names for other things."""
    return Truncation.AGENT_LIMIT if truncated is True and terminated is False else None


def truncation_of_types(types: Sequence[Any]) -> Truncation | None:
    """What the types of a trajectory's items say."""
    stopped = bool(types) and types[-1] == "function_call" and _OUTPUT in types
    return Truncation.AGENT_LIMIT if stopped else None


def truncation_of_output(output: bytes | memoryview | msgspec.Raw) -> Truncation | None:
    """The same for a trajectory as JSON. Only those with tool outputs are parsed."""
    data = bytes(output)
    # Within texts the quotes are escaped, so this finds types only. A trajectory that ends with a call has that last.
    if _OUTPUT.encode() not in data or data.rfind(b'"function_call"') < data.rfind(b'"function_call_output"'):
        return None
    try:
        return truncation_of_types([item.type for item in _ITEMS.decode(data)])
    except msgspec.MsgspecError:
        return None
