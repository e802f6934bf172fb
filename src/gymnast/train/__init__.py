"""Turns records into training samples: exact tokens, typed mask reasons, and an error if rollouts are missing."""

from gymnast.train.batch import collect_batch, require_something_to_train
from gymnast.train.batch_progress import BatchOptions
from gymnast.train.batch_request import Outcome, Rollouts
from gymnast.train.errors import FewerRolloutsError, NothingLeftError, NothingToTrainError
from gymnast.train.estimators import Estimator, advantages, group_advantages
from gymnast.train.group_stream import GroupStream, StreamOptions, WhenStale, stream
from gymnast.train.ledger import Share
from gymnast.train.metrics import Metrics, batch_metrics
from gymnast.train.sample_reader import SampleOptions, failed_sample, sample_of
from gymnast.train.samples import (
    Batch,
    Group,
    MaskReason,
    RolloutFailure,
    Sample,
    Segment,
    Termination,
    VersionSpan,
)
from gymnast.train.versions import PolicyVersions
from gymnast.train.vllm_weights import VllmWeights, WeightUpdateError

__all__ = [
    "Batch",
    "BatchOptions",
    "Estimator",
    "FewerRolloutsError",
    "Group",
    "GroupStream",
    "MaskReason",
    "Metrics",
    "NothingLeftError",
    "NothingToTrainError",
    "Outcome",
    "PolicyVersions",
    "RolloutFailure",
    "Rollouts",
    "Sample",
    "SampleOptions",
    "Segment",
    "Share",
    "StreamOptions",
    "Termination",
    "VersionSpan",
    "VllmWeights",
    "WeightUpdateError",
    "WhenStale",
    "advantages",
    "batch_metrics",
    "collect_batch",
    "failed_sample",
    "group_advantages",
    "require_something_to_train",
    "sample_of",
    "stream",
]
