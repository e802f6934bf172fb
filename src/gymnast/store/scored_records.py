"""Reads scored records: the rollout's key and what it adds to the totals, in one decode that skips everything else.

A record is valid if it is JSON from its first byte to its last and has a reward and a key. Whatever else it contains is
an author's: fields of another form than expected add nothing, and never make a record invalid.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from gymnast.store.keys import ScoredKey
from gymnast.types.task import AGENT_REF, MASK, ROLLOUT_INDEX, TASK_INDEX, RolloutKey, agent_name_of
from gymnast.types.totals import RolloutFacts
from gymnast.types.truncation import (
    truncation_of,
    truncation_of_episode,
    truncation_of_output,
    truncation_of_reason,
)

_TOOL_OUTPUT: Final = b"function_call_output"
"""Without it a trajectory need not be looked at."""


class ScoredRecord(NamedTuple):
    """A scored record, as far as it is read."""

    key: RolloutKey
    facts: RolloutFacts


class _Agent(msgspec.Struct, gc=False):
    name: str = ""


class _Usage(msgspec.Struct, gc=False):
    output_tokens: int | None = None


class _Response(msgspec.Struct, gc=False):
    usage: _Usage | None = None
    incomplete_details: dict[str, Any] | None = None
    output: msgspec.Raw = msgspec.Raw()


class _Record(msgspec.Struct, gc=False):
    reward: float
    task: int = msgspec.field(name=TASK_INDEX)
    rollout: int = msgspec.field(name=ROLLOUT_INDEX)
    agent: _Agent | None = msgspec.field(name=AGENT_REF, default=None)
    response: _Response | None = None
    mask_sample: bool | None = None
    terminated: bool | None = None
    truncated: bool | None = None


_RECORD: Final = msgspec.json.Decoder(_Record)
_KEYED: Final = msgspec.json.Decoder(ScoredKey)
_ANY: Final = msgspec.json.Decoder(dict[str, Any])


def parse_scored(line: bytes) -> ScoredRecord | None:
    """The record in a line; None if it is damaged or has no reward.

    For files that a crash may have damaged, where a valid end may follow garbage.
    """
    try:
        if not line.isascii():
            line.decode()  # the decoder does not validate text that it skips
        record = _RECORD.decode(line)
    except msgspec.ValidationError:
        return _parse_unusual(line)
    except (ValueError, RecursionError):
        return None
    response = record.response
    truncated = truncation_of_episode(record.terminated, record.truncated)
    tokens = None
    if response is not None:
        tokens = response.usage.output_tokens if response.usage is not None else None
        truncated = truncation_of_reason(response.incomplete_details) or truncated
        if truncated is None and _TOOL_OUTPUT in line:
            truncated = truncation_of_output(response.output)
    agent = record.agent.name if record.agent is not None else ""
    facts = RolloutFacts(agent, record.reward, tokens, truncated, record.mask_sample is True)
    return ScoredRecord(RolloutKey(record.task, record.rollout), facts)


def facts_of_record(record: dict[str, Any]) -> RolloutFacts:
    """What a parsed record with a reward adds to the totals."""
    response = record.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    tokens = usage.get("output_tokens") if isinstance(usage, dict) else None
    return RolloutFacts(
        agent_name_of(record) or "",
        float(record["reward"]),
        tokens if isinstance(tokens, int) else None,
        truncation_of(record),
        record.get(MASK) is True,
        None,
    )


def _parse_unusual(line: bytes) -> ScoredRecord | None:
    """A record some of whose other fields have an unusual form."""
    try:
        keyed = _KEYED.decode(line)
        facts = facts_of_record(_ANY.decode(line))
    except (ValueError, RecursionError):
        return None
    return ScoredRecord(RolloutKey(keyed.task, keyed.rollout), facts)
