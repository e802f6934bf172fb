"""Decodes the fields of records that a selection needs, and skips the rest."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymnast.errors import DataError
from gymnast.types.json import can_be_struct_field
from gymnast.types.task import AGENT_REF, FAILURE_CLASS, FAILURE_TERMINAL, MASK, PARAMS, ROLLOUT_INDEX, TASK_INDEX
from gymnast.types.truncation import truncation_of_episode, truncation_of_reason, truncation_of_types

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Part(msgspec.Struct, gc=False):
    type: str = ""
    text: msgspec.Raw = msgspec.Raw()
    refusal: msgspec.Raw = msgspec.Raw()
    image_url: msgspec.Raw = msgspec.Raw()
    detail: msgspec.Raw = msgspec.Raw()


class Item(msgspec.Struct, gc=False):
    type: str | None = "message"
    role: str | None = None
    content: list[Part] | str | None = None
    name: msgspec.Raw = msgspec.Raw()
    arguments: msgspec.Raw = msgspec.Raw()
    call_id: msgspec.Raw = msgspec.Raw()
    output: msgspec.Raw = msgspec.Raw()
    summary: list[Part] | None = None


class Params(msgspec.Struct, gc=False):
    input: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()


class Agent(msgspec.Struct, gc=False):
    name: str = ""


class Response(msgspec.Struct, gc=False):
    output: list[Item] | None = None
    incomplete_details: Any = None
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()


class Record(msgspec.Struct, gc=False):
    """A scored record, as far as exports read it."""

    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    reward: Any = None
    agent: Agent | None = msgspec.field(name=AGENT_REF, default=None)
    params: msgspec.Raw = msgspec.field(name=PARAMS, default=msgspec.Raw())
    response: Response | None = None
    failure: Any = msgspec.field(name=FAILURE_CLASS, default=None)
    masked: Any = msgspec.field(name=MASK, default=None)
    terminated: Any = msgspec.UNSET
    truncated: Any = msgspec.UNSET
    """This and the one before may be an author's own."""
    is_unusual: bool = msgspec.field(name="gymnast export: unusual", default=False)
    """Its transcript has a form that cannot be read."""


class _Loose(msgspec.Struct, gc=False):
    """The fields that every record must have, and the rest in any form."""

    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    reward: Any = None
    agent: msgspec.Raw = msgspec.field(name=AGENT_REF, default=msgspec.Raw())
    failure: Any = msgspec.field(name=FAILURE_CLASS, default=None)
    masked: Any = msgspec.field(name=MASK, default=None)
    terminated: Any = msgspec.UNSET
    truncated: Any = msgspec.UNSET


class FailedAttempt(msgspec.Struct, gc=False):
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    kind: str | None = msgspec.field(name=FAILURE_CLASS, default=None)
    is_final: Any = msgspec.field(name=FAILURE_TERMINAL, default=None)


_RECORD: Final = msgspec.json.Decoder(Record).decode
_LOOSE: Final = msgspec.json.Decoder(_Loose).decode
decode_failed: Final = msgspec.json.Decoder(FailedAttempt).decode
_RECORD_NAMES: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Record))
_MAX_FIELDS: Final = 200
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode_record(line: bytes, path: Path, number: int) -> Record:
    """The record in a line. Raises DataError if it is not one."""
    try:
        if not line.isascii():
            line.decode()  # the decoder does not validate text that it skips
        return _RECORD(line)
    except msgspec.ValidationError:
        pass
    except (ValueError, RecursionError) as error:
        repaired = replace_half_pairs(line)
        if repaired is None:
            raise _bad_record(str(error), path, number) from error
        return decode_record(repaired, path, number)
    try:
        loose = _LOOSE(line)
    except (ValueError, RecursionError) as error:
        raise _bad_record(str(error), path, number) from error
    return Record(
        loose.task, loose.rollout, loose.reward, failure=loose.failure, masked=loose.masked,
        terminated=loose.terminated, truncated=loose.truncated, is_unusual=True,
    )  # fmt: skip


class WholeRecordDecoder:
    """Decodes records together with the fields that authors added, each as JSON.

    Records of a run have the same fields, so a struct with their names is made when one is met for the first time:
    that costs half of what a second look at every line would.
    """

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        self._is_wanted = is_wanted
        self._names: list[str] = []
        self._wanted: list[tuple[str, bytes]] = []
        """Attributes that are wanted, and how each is written."""
        self._decode: Callable[[bytes], Any] | None = None

    def decode(self, line: bytes, path: Path, number: int) -> Record:
        """The record in a line. Raises DataError if it is not one."""
        if self._decode is not None and line.isascii():
            try:
                record: Record = self._decode(line)
            except (ValueError, RecursionError):
                pass
            else:
                return record
        record = decode_record(line, path, number)
        self._learn(line)
        return record

    def other_fields(self, record: Record, line: bytes) -> bytes:
        """The wanted fields of a record that was decoded here, as a JSON object."""
        if type(record) is Record:
            fields = decode_fields(line)
            return msgspec.json.encode({name: value for name, value in fields.items() if self._is_wanted(name)})
        pieces: list[Any] = []
        if record.terminated is not msgspec.UNSET:
            pieces += (b',"terminated":', msgspec.json.encode(record.terminated))
        if record.truncated is not msgspec.UNSET:
            pieces += (b',"truncated":', msgspec.json.encode(record.truncated))
        for attribute, head in self._wanted:
            value = getattr(record, attribute)
            if value:
                pieces += (head, value)
        if not pieces:
            return b"{}"
        pieces[0] = b"{" + pieces[0][1:]
        pieces.append(b"}")
        return b"".join(pieces)

    def _learn(self, line: bytes) -> None:
        """Make a struct that has the fields of this line as well."""
        new = [name for name in decode_fields(line) if name not in _RECORD_NAMES and name not in self._names]
        if not new or len(self._names) + len(new) > _MAX_FIELDS or not all(map(can_be_struct_field, new)):
            return
        self._names += new
        names = {f"field_{number}": name for number, name in enumerate(self._names)}
        wanted = {attribute: name for attribute, name in names.items() if self._is_wanted(name)}
        self._wanted = [(attribute, b"," + msgspec.json.encode(name) + b":") for attribute, name in wanted.items()]
        fields = [(name, msgspec.Raw, msgspec.Raw()) for name in names]
        struct = msgspec.defstruct(
            "WholeRecord", fields, bases=(Record,), rename=names, forbid_unknown_fields=True, gc=False
        )
        self._decode = msgspec.json.Decoder(struct).decode


def decode_fields(line: bytes) -> dict[str, msgspec.Raw]:
    """The fields of a record or a row."""
    try:
        return _FIELDS(line)
    except msgspec.DecodeError:
        return _FIELDS(replace_half_pairs(line) or line)


def replace_half_pairs(line: bytes) -> bytes | None:
    """A line without halves of surrogate pairs, which Python's own JSON module writes; None if it has none."""
    if b"\\ud" not in line.lower():
        return None
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None
    repaired = text.encode("utf-8", "replace")
    return repaired if repaired != text.encode("utf-8", "surrogatepass") else None


def is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # an integer with hundreds of digits
        return False


def is_truncated_record(record: Record) -> bool:
    """Whether the record is of a truncated rollout."""
    if record.truncated is True and truncation_of_episode(record.terminated, record.truncated) is not None:
        return True
    response = record.response
    if response is None:
        return False
    if response.incomplete_details and truncation_of_reason(response.incomplete_details) is not None:
        return True
    output = response.output
    if not output or output[-1].type != "function_call":
        return False
    return truncation_of_types([item.type for item in output]) is not None


def agent_of(record: Record) -> str:
    """The name of the agent."""
    return record.agent.name if record.agent is not None else ""


def model_of(record: Record) -> str:
    """The model that the response names."""
    return (record.response.model or "") if record.response is not None else ""


def _bad_record(reason: str, path: Path, number: int) -> DataError:
    hint = "if the run was killed while writing this line, repair the file with `gymnast collect --resume`"
    return DataError(f"not a rollout record: {reason}", where=f"{path} line {number}", next=hint)
