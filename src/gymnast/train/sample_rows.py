"""Converts samples to rows for files, and back. Rows have a schema version; a newer one is rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gymnast.errors import DataError
from gymnast.tokens.media import Media
from gymnast.train.samples import MaskReason, RolloutFailure, Sample, Segment, Termination, VersionSpan
from gymnast.types.task import RolloutKey
from gymnast.types.tokens import ForkReason

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

SCHEMA_VERSION: Final = 1


def sample_to_row(sample: Sample) -> JsonObject:
    """A sample as plain data."""
    failure = sample.failure
    return {
        "schema_version": SCHEMA_VERSION,
        "task": sample.key.task,
        "rollout": sample.key.rollout,
        "agent": sample.agent,
        "model": sample.model,
        "reward": sample.reward,
        "reward_components": [{"name": name, "value": value} for name, value in sample.components.items()],
        "is_trainable": sample.is_trainable,
        "mask_reason": sample.mask_reason.value if sample.mask_reason is not None else None,
        "mask_detail": sample.mask_detail,
        "failure_kind": failure.kind if failure is not None else None,
        "failure_message": failure.message if failure is not None else None,
        "termination": sample.termination.value,
        "drifted_calls": sample.drifted_calls,
        "numbers": [{"name": name, "value": value} for name, value in sample.numbers.items()],
        "segments": [_segment_row(segment) for segment in sample.segments],
    }


def sample_from_row(row: JsonObject) -> Sample:
    """The sample of a row. Raises DataError for a newer schema version."""
    version = row.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise DataError(f"a sample has schema version {version}; supported: {SCHEMA_VERSION}", next="update gymnast")
    kind = row["failure_kind"]
    return Sample(
        RolloutKey(row["task"], row["rollout"]),
        row["agent"],
        row["reward"],
        tuple(_segment(segment) for segment in row["segments"]),
        {entry["name"]: entry["value"] for entry in row["reward_components"]},
        MaskReason(row["mask_reason"]) if row["mask_reason"] is not None else None,
        row["mask_detail"],
        RolloutFailure(kind, row["failure_message"] or "") if kind is not None else None,
        Termination(row["termination"]),
        {entry["name"]: entry["value"] for entry in row["numbers"]},
        row["drifted_calls"],
        row["model"],
    )


def _segment_row(segment: Segment) -> JsonObject:
    return {
        "ids": segment.ids.tolist(),
        "mask": segment.mask.tolist(),
        "logprobs": segment.logprobs.tolist(),
        "logprob_mode": segment.logprob_mode,
        "temperature": segment.temperature,
        "turns": [list(turn) for turn in segment.turns],
        "versions": [span._asdict() for span in segment.versions],
        "reason": str(segment.reason),
        "parent": segment.parent,
        "shared": segment.shared,
        "share": segment.share,
        "media": [[one._asdict() for one in added] for added in segment.new_media],
    }


def _segment(row: JsonObject) -> Segment:
    turns: list[Any] = row["turns"]
    return Segment(
        np.array(row["ids"], dtype=np.int32),
        np.array(row["mask"], dtype=np.uint8),
        np.array(row["logprobs"], dtype=np.float32),
        tuple((start, end) for start, end in turns),
        tuple(VersionSpan(**span) for span in row["versions"]),
        ForkReason(row["reason"]),
        row["parent"],
        row["shared"],
        row["share"],
        row["logprob_mode"],
        row["temperature"],
        new_media=tuple(tuple(Media(**one) for one in added) for added in row.get("media") or ()),
    )
