"""Parses records into samples. Pure: bytes in, a sample out; what cannot be trained on is masked with a reason.

Ids, masks and logprobs come from the ledger. Nothing is tokenized again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from gymnast.tokens.export import BadLedger
from gymnast.train.arguments import choose, require_switch
from gymnast.train.episode_agents import assign_policies, parse_parts
from gymnast.train.estimators import is_finite_reward
from gymnast.train.ledger import Share, ledger_of, segments_of
from gymnast.train.samples import (
    MaskReason,
    RolloutFailure,
    Sample,
    Termination,
)
from gymnast.train.segment_media import add_media
from gymnast.types.failure import FailureKind
from gymnast.types.items import TRAINING_FIELDS
from gymnast.types.task import AGENT_REF, FAILURE_CLASS, MASK, ROLLOUT_INDEX, TASK_INDEX, RolloutKey
from gymnast.types.tokens import EPISODE_AGENTS, LEDGER, TokenLedger
from gymnast.types.truncation import Truncation, truncation_of_episode, truncation_of_reason, truncation_of_types

_NUMBER_START: Final = frozenset(b"-0123456789tf")
_SAMPLED, _LOGPROBS = TRAINING_FIELDS[1:]
_NOT_NUMBERS: Final = frozenset({TASK_INDEX, ROLLOUT_INDEX, "reward", MASK})


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """How to read records."""

    share: Share = Share.TOKENS
    mask_truncated: bool = False
    """Do not train on truncated rollouts."""
    keep_line: bool = False
    """Keep the record with the sample; takes several times the memory of its tokens."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", choose("share", self.share, Share))
        for name in ("mask_truncated", "keep_line"):
            require_switch(name, getattr(self, name))


DEFAULT_OPTIONS: Final = SampleOptions()


class _AgentRef(msgspec.Struct):
    name: str = ""


class _Response(msgspec.Struct):
    output: list[dict[str, Any]] = []
    incomplete_details: dict[str, Any] | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None


class _Failure(msgspec.Struct):
    kind: str = FailureKind.UNKNOWN.value
    message: str = ""


_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RESPONSE: Final = msgspec.json.Decoder(_Response)
_NUMBERS: Final = msgspec.json.Decoder(dict[str, float])
_ANY: Final = msgspec.json.Decoder()
_AGENT: Final = msgspec.json.Decoder(_AgentRef)
_FAILURE: Final = msgspec.json.Decoder(_Failure)

_Fields = dict[str, msgspec.Raw]
T = TypeVar("T")


def sample_of(
    line: bytes, options: SampleOptions = DEFAULT_OPTIONS, *, key: RolloutKey | None = None, failed: bool = False
) -> Sample:
    """The sample of a scored or failed record. `key` overrides the record's own.

    Raises msgspec.MsgspecError or KeyError for a line that is not a record.
    """
    fields = _FIELDS.decode(line)
    if key is None:
        key = RolloutKey(_ANY.decode(fields[TASK_INDEX]), _ANY.decode(fields[ROLLOUT_INDEX]))
    ref = _read(_AGENT, fields.get(AGENT_REF))
    agent = ref.name if ref is not None else ""
    record = bytes(line) if options.keep_line else None
    if failed or (FAILURE_CLASS in fields and _ANY.decode(fields[FAILURE_CLASS])):
        return replace(failed_sample(key, _failure_of(fields), agent), line=record)
    reward = _number(fields.get("reward"))
    if reward is None or not is_finite_reward(reward):
        failure = RolloutFailure(FailureKind.VERIFIER_BAD_REPLY.value, "no reward that is finite in 32 bits")
        return replace(failed_sample(key, failure, agent), line=record)
    try:
        agents = parse_parts(fields[EPISODE_AGENTS]) if EPISODE_AGENTS in fields else ()
    except ValueError as error:
        failure = RolloutFailure(FailureKind.VERIFIER_BAD_REPLY.value, f"{EPISODE_AGENTS}: {error}")
        return replace(failed_sample(key, failure, agent), line=record)
    sample = Sample(
        key, agent, reward, components=_components(fields), numbers=_numbers(fields), line=record, agents=agents
    )
    return _apply_masks(_with_tokens(sample, fields, options), fields, options)


def failed_sample(key: RolloutKey, failure: RolloutFailure, agent: str = "") -> Sample:
    """The sample of a rollout without a reward."""
    return Sample(
        key,
        agent,
        None,
        mask_reason=MaskReason.FAILED,
        mask_detail=failure.kind,
        failure=failure,
        termination=Termination.FAILED,
    )


# --- the fields of a record ------------------------------------------------------------------------------------------


def _failure_of(fields: _Fields) -> RolloutFailure:
    failure = _read(_FAILURE, fields.get("failure"))
    if failure is not None:
        return RolloutFailure(failure.kind, failure.message)
    kind = _ANY.decode(fields[FAILURE_CLASS]) if FAILURE_CLASS in fields else None
    return RolloutFailure(str(kind or FailureKind.UNKNOWN.value))


def _read(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | None) -> T | None:
    """Decode a field; None if it has another form, since an author's data must not be rejected."""
    try:
        return decoder.decode(raw) if raw is not None else None
    except msgspec.ValidationError:
        return None


def _number(raw: msgspec.Raw | None) -> float | None:
    """A finite number, or None for anything else."""
    if raw is None or memoryview(raw)[0] not in _NUMBER_START:
        return None
    try:
        value = float(_ANY.decode(raw))
    except (OverflowError, msgspec.ValidationError):  # an integer with hundreds of digits, or 1e999
        return None
    return value if math.isfinite(value) else None


def _components(fields: _Fields) -> dict[str, float]:
    components = _read(_NUMBERS, fields.get("reward_components")) or {}
    return {name: value for name, value in components.items() if is_finite_reward(value)}


def _numbers(fields: _Fields) -> dict[str, float]:
    numbers = {name: _number(raw) for name, raw in fields.items() if name not in _NOT_NUMBERS}
    return {name: value for name, value in numbers.items() if value is not None}


def _apply_masks(sample: Sample, fields: _Fields, options: SampleOptions) -> Sample:
    mask = fields.get(MASK)
    if mask is not None and _ANY.decode(mask) is True:
        sample = sample.masked(MaskReason.ENVIRONMENT, "mask_sample is true")
    if options.mask_truncated and sample.is_truncated:
        sample = sample.masked(MaskReason.TRUNCATED, sample.termination.value)
    return sample


# --- its tokens ------------------------------------------------------------------------------------------------------


def _with_tokens(sample: Sample, fields: _Fields, options: SampleOptions) -> Sample:
    response = _read(_RESPONSE, fields.get("response")) or _Response()
    try:
        ledger, bad = ledger_of(fields.get(LEDGER), fields.get("response"))
    except BadLedger as error:
        termination = _termination(fields, response, None)
        return replace(sample, termination=termination).masked(MaskReason.BAD_LEDGER, str(error))
    termination, model = _termination(fields, response, ledger), response.model or ""
    if ledger is None:
        return replace(sample, termination=termination, model=model).masked(_reason_without_ledger(response))
    segments = segments_of(ledger, options.share)
    try:
        segments = add_media(segments, ledger.calls, fields)
    except BadLedger as error:
        return replace(sample, termination=termination).masked(MaskReason.BAD_LEDGER, str(error))
    drifted = sum(call.drift is not None for call in ledger.calls)
    sample = replace(
        sample, termination=termination, segments=segments, drifted_calls=drifted, model=ledger.model or model
    )
    if bad:
        return sample.masked(MaskReason.BAD_LOGPROBS, f"calls {', '.join(map(str, bad))}")
    if LEDGER not in fields and any(item.get(_SAMPLED) and not item.get(_LOGPROBS) for item in response.output):
        return sample.masked(MaskReason.BAD_LOGPROBS, "an item has sampled ids and no logprobs")
    try:
        agents = assign_policies(sample.agents, ledger.calls)
        sample = replace(sample, agents=agents) if agents else sample
    except ValueError as error:
        sample = sample.masked(MaskReason.BAD_LEDGER, f"{EPISODE_AGENTS} {error}")
    return sample if any(segment.trained for segment in segments) else sample.masked(MaskReason.NOTHING_SAMPLED)


def _reason_without_ledger(response: _Response) -> MaskReason:
    if any(item.get(_SAMPLED) for item in response.output):
        return MaskReason.BAD_LOGPROBS
    is_empty = (response.usage or {}).get("output_tokens") == 0
    return MaskReason.NOTHING_SAMPLED if is_empty else MaskReason.NO_TOKENS


def _termination(fields: _Fields, response: _Response, ledger: TokenLedger | None) -> Termination:
    """How the rollout ended: as its record says, or as the inference server said of its last call."""
    truncated = (
        truncation_of_reason(response.incomplete_details)
        or truncation_of_episode(*(_read(_ANY, fields.get(name)) for name in ("terminated", "truncated")))
        or truncation_of_types([item.get("type") for item in response.output])
    )
    if truncated is Truncation.LENGTH or (ledger is not None and ledger.calls and ledger.calls[-1].finish == "length"):
        return Termination.LENGTH
    return Termination.TURN_LIMIT if truncated is not None else Termination.NATURAL
