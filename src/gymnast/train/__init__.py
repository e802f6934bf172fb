"""Turns records into training samples: exact tokens, typed mask reasons, and an error if rollouts are missing."""

from gymnast.train.batch import collect_batch, collect_group, require_something_to_train
from gymnast.train.batch_progress import BatchOptions
from gymnast.train.batch_request import Outcome, Rollouts
from gymnast.train.engine_weights import EngineWeights, WeightUpdateError
from gymnast.train.episode_agents import split_agents
from gymnast.train.errors import FewerRolloutsError, NoSignalError, NothingLeftError, NothingToTrainError
from gymnast.train.estimators import Estimator, advantages, group_advantages
from gymnast.train.group_selection import Select, has_signal
from gymnast.train.group_stream import GroupStream, stream
from gymnast.train.ledger import Share
from gymnast.train.metrics import Metrics, batch_metrics
from gymnast.train.sample_reader import SampleOptions, failed_sample, sample_of
from gymnast.train.samples import (
    AgentPart,
    Batch,
    Group,
    MaskReason,
    RolloutFailure,
    Sample,
    Segment,
    Termination,
    VersionSpan,
)
from gymnast.train.sglang_weights import SglangWeights
from gymnast.train.stream_options import StreamOptions, WhenStale
from gymnast.train.task_sources import Curriculum, TaskMixture, TaskSource
from gymnast.train.versions import PolicyVersions
from gymnast.train.vllm_weights import VllmWeights

__all__ = [
    "AgentPart",
    "Batch",
    "BatchOptions",
    "Curriculum",
    "EngineWeights",
    "Estimator",
    "FewerRolloutsError",
    "Group",
    "GroupStream",
    "MaskReason",
    "Metrics",
    "NoSignalError",
    "NothingLeftError",
    "NothingToTrainError",
    "Outcome",
    "PolicyVersions",
    "RolloutFailure",
    "Rollouts",
    "Sample",
    "SampleOptions",
    "Segment",
    "Select",
    "SglangWeights",
    "Share",
    "StreamOptions",
    "TaskMixture",
    "TaskSource",
    "Termination",
    "VersionSpan",
    "VllmWeights",
    "WeightUpdateError",
    "WhenStale",
    "advantages",
    "batch_metrics",
    "collect_batch",
    "collect_group",
    "failed_sample",
    "group_advantages",
    "has_signal",
    "require_something_to_train",
    "sample_of",
    "split_agents",
    "stream",
]
