"""SkyRL's own classes. Some of its type hints need Python 3.12; on 3.11 they are made by typing_extensions."""

from __future__ import annotations

import typing
from unittest import mock

import typing_extensions

with mock.patch.object(typing, "TypedDict", typing_extensions.TypedDict):
    from skyrl.backends.skyrl_train.distributed.dispatch import WorkerOutput
    from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.dataset.dataset import PromptDataset
    from skyrl.train.generators.utils import prepare_generator_input
    from skyrl.train.trainer import RayPPOTrainer

__all__ = [
    "PolicyLossRegistry",
    "PromptDataset",
    "RayPPOTrainer",
    "SkyRLTrainConfig",
    "WorkerOutput",
    "prepare_generator_input",
]
