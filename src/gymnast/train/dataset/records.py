"""Decodes the fields of records that a selection needs, and skips the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import DataError
from gymnast.types.task import AGENT_REF, FAILURE_CLASS, FAILURE_TERMINAL, MASK, ROLLOUT_INDEX, TASK_INDEX
from gymnast.types.truncation import truncation_of_episode, truncation_of_output, truncation_of_reason

if TYPE_CHECKING:
    from pathlib import Path

_TOOL_OUTPUT: Final = b"function_call_output"


class Agent(msgspec.Struct, gc=False):
    name: str = ""


class Response(msgspec.Struct, gc=False):
    output: msgspec.Raw = msgspec.Raw()
    incomplete_details: Any = None
    model: str | None = None
    usage: Any = None


class _Record(msgspec.Struct, gc=False):
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    reward: Any = None
    agent: Agent | None = msgspec.field(name=AGENT_REF, default=None)
    response: Response | None = None
    failure: Any = msgspec.field(name=FAILURE_CLASS, default=None)
    masked: Any = msgspec.field(name=MASK, default=None)
    terminated: Any = None
    truncated: Any = None


class _Loose(msgspec.Struct, gc=False):
    """The same for a record some of whose fields have an unusual form."""

    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    reward: Any = None
    agent: Any = msgspec.field(name=AGENT_REF, default=None)
    response: Any = None
    failure: Any = msgspec.field(name=FAILURE_CLASS, default=None)
    masked: Any = msgspec.field(name=MASK, default=None)
    terminated: Any = None
    truncated: Any = None


class FailedAttempt(msgspec.Struct, gc=False):
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    kind: str | None = msgspec.field(name=FAILURE_CLASS, default=None)
    is_final: Any = msgspec.field(name=FAILURE_TERMINAL, default=None)


_RECORD: Final = msgspec.json.Decoder(_Record).decode
_LOOSE: Final = msgspec.json.Decoder(_Loose).decode
decode_failed: Final = msgspec.json.Decoder(FailedAttempt).decode
decode_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def is_truncated_record(record: Any, line: bytes) -> bool:
    """Whether the record is of a truncated rollout."""
    if truncation_of_episode(record.terminated, record.truncated) is not None:
        return True
    response = record.response
    if not isinstance(response, Response):
        return False
    if response.incomplete_details and truncation_of_reason(response.incomplete_details) is not None:
        return True
    return _TOOL_OUTPUT in line and truncation_of_output(response.output) is not None


def agent_of(record: Any) -> str:
    """The name of the agent."""
    return record.agent.name if isinstance(record.agent, Agent) else ""


def model_of(record: Any) -> str:
    """The model that the response names."""
    return (record.response.model or "") if isinstance(record.response, Response) else ""


def decode_record(line: bytes, path: Path, number: int) -> Any:
    try:
        if not line.isascii():
            line.decode()  # the decoder does not validate text that it skips
        return _RECORD(line)
    except msgspec.ValidationError:
        pass
    except (ValueError, RecursionError) as error:
        raise _bad_record(str(error), path, number) from error
    try:
        record = _LOOSE(line)
    except (ValueError, RecursionError) as error:
        raise _bad_record(str(error), path, number) from error
    record.response = _part(record.response, Response)
    record.agent = _part(record.agent, Agent)
    return record


def _part(value: Any, kind: type) -> Any:
    """A part of a record, if it has the usual form."""
    if not isinstance(value, dict):
        return None
    try:
        return msgspec.json.decode(msgspec.json.encode(value), type=kind)
    except (msgspec.MsgspecError, ValueError):
        return None


def _bad_record(reason: str, path: Path, number: int) -> DataError:
    hint = "if the run was killed while writing this line, repair the file with `gymnast collect --resume`"
    return DataError(f"not a rollout record: {reason}", where=f"{path} line {number}", next=hint)
