"""Records become samples. Pure: a line of bytes in, a sample out; what cannot be trained on is masked with its reason.

Ids, masks and logprobs are the ledger's. Nothing is encoded again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from gymnast.tokens.export import BadLedger
from gymnast.tokens.items import BUNDLE
from gymnast.train.ledger import Share, ledger_of, segments_of
from gymnast.train.samples import (
    MaskReason,
    RolloutFailure,
    Sample,
    Termination,
)
from gymnast.types.task import AGENT_REF, FAILURE_CLASS, ROLLOUT_INDEX, TASK_INDEX, RolloutKey
from gymnast.types.tokens import LEDGER, TokenLedger

_NUMBER_STARTS: Final = frozenset(b"-0123456789tf")
_SAMPLED, _LOGPROBS = BUNDLE[1:]
_NOT_NUMBERS: Final = frozenset({TASK_INDEX, ROLLOUT_INDEX, "reward", "mask_sample"})


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """How records are read."""

    share: Share = Share.TOKENS
    mask_truncated: bool = False
    """Do not train on rollouts that were cut off."""
    keep_line: bool = False
    """Keep the whole record with the sample; it takes several times the memory of its tokens."""


DEFAULT_OPTIONS: Final = SampleOptions()


class _AgentRef(msgspec.Struct):
    name: str = ""


class _Response(msgspec.Struct):
    output: list[dict[str, Any]] = []
    incomplete_details: dict[str, Any] | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None


class _Failure(msgspec.Struct):
    kind: str = "unknown"
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
    """The sample of a record, scored or failed. `key`: the caller's name for the rollout, if not the record's.

    Raises msgspec.MsgspecError or KeyError for a line that is no record at all.
    """
    fields = _FIELDS.decode(line)
    name = key if key is not None else RolloutKey(_ANY.decode(fields[TASK_INDEX]), _ANY.decode(fields[ROLLOUT_INDEX]))
    ref = _read(_AGENT, fields.get(AGENT_REF))
    agent = ref.name if ref is not None else ""
    kept = bytes(line) if options.keep_line else None
    if failed or (FAILURE_CLASS in fields and _ANY.decode(fields[FAILURE_CLASS])):
        return replace(failed_sample(name, _failure_of(fields), agent), line=kept)
    reward = _number(fields.get("reward"))
    if reward is None:
        return replace(failed_sample(name, RolloutFailure("verifier_bad_reply", "no finite reward"), agent), line=kept)
    sample = Sample(name, agent, reward, components=_components(fields), numbers=_numbers(fields), line=kept)
    return _masked_by_record(_with_tokens(sample, fields, options), fields, options)


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
    found = _read(_FAILURE, fields.get("failure"))
    if found is not None:
        return RolloutFailure(found.kind, found.message)
    named = _ANY.decode(fields[FAILURE_CLASS]) if FAILURE_CLASS in fields else None
    return RolloutFailure(str(named or "unknown"))


def _read(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | None) -> T | None:
    """A field in the form it should have; None for any other: the author's data is not ours to refuse."""
    try:
        return decoder.decode(raw) if raw is not None else None
    except msgspec.ValidationError:
        return None


def _number(raw: msgspec.Raw | None) -> float | None:
    """A finite number, or None for anything else."""
    if raw is None or memoryview(raw)[0] not in _NUMBER_STARTS:
        return None
    try:
        value = float(_ANY.decode(raw))
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return value if math.isfinite(value) else None


def _components(fields: _Fields) -> dict[str, float]:
    found = _read(_NUMBERS, fields.get("reward_components")) or {}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _numbers(fields: _Fields) -> dict[str, float]:
    found = {name: _number(raw) for name, raw in fields.items() if name not in _NOT_NUMBERS}
    return {name: value for name, value in found.items() if value is not None}


def _masked_by_record(sample: Sample, fields: _Fields, options: SampleOptions) -> Sample:
    asked = fields.get("mask_sample")
    if asked is not None and _ANY.decode(asked) is True:
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
        ended = _termination(response, None)
        return replace(sample, termination=ended).masked(MaskReason.BAD_LEDGER, str(error))
    sample = replace(sample, termination=_termination(response, ledger), model=response.model or "")
    if ledger is None:
        return sample.masked(_without_ledger(response))
    found = segments_of(ledger, options.share)
    drifted = sum(call.drift is not None for call in ledger.calls)
    sample = replace(sample, segments=found, drifted_calls=drifted, model=ledger.model or sample.model)
    if bad:
        return sample.masked(MaskReason.BAD_LOGPROBS, f"calls {', '.join(map(str, bad))}")
    if LEDGER not in fields and any(item.get(_SAMPLED) and not item.get(_LOGPROBS) for item in response.output):
        return sample.masked(MaskReason.BAD_LOGPROBS, "an item has sampled ids and no logprobs")
    if not any(segment.trained for segment in found):
        return sample.masked(MaskReason.NOTHING_SAMPLED)
    return sample


def _without_ledger(response: _Response) -> MaskReason:
    if any(item.get(_SAMPLED) for item in response.output):
        return MaskReason.BAD_LOGPROBS
    nothing = (response.usage or {}).get("output_tokens") == 0
    return MaskReason.NOTHING_SAMPLED if nothing else MaskReason.NO_TOKENS


def _termination(response: _Response, ledger: TokenLedger | None) -> Termination:
    if response.incomplete_details or (ledger is not None and ledger.calls and ledger.calls[-1].finish == "length"):
        return Termination.LENGTH
    last = response.output[-1] if response.output else {}
    return Termination.TURN_LIMIT if last.get("type") == "function_call" else Termination.NATURAL
