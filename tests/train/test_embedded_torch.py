"""The embedded policy computes what the same model computes in torch."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from gymnast.builtin.responses_api_models.embedded_model.cache import Cache, Pool
from gymnast.builtin.responses_api_models.embedded_model.sampling import log_probabilities
from gymnast.builtin.responses_api_models.embedded_model.transformer import Shape, Transformer
from tests.helpers.small_transformer import random_weights

TRAINING = Path(__file__).parents[2] / "training" / "embedded"


def test_logprobs_agree_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TRAINING))
    model = importlib.import_module("model")
    shape = Shape.from_config(model.CONFIG)
    tensors = random_weights(shape, seed=3)
    ids = np.random.default_rng(1).integers(0, shape.vocabulary, 200)
    with torch.no_grad():
        expected = model.load(model.CONFIG, tensors)(torch.from_numpy(ids)[None]).log_softmax(-1)[0].numpy()
    logits = Transformer(shape, tensors).forward([(Cache(Pool(shape)), ids.tolist())], every=True)
    np.testing.assert_allclose(log_probabilities(logits), expected, atol=1e-4)
