"""Policies and rows of rollouts on a served model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gymnast.tokens.load import load_renderer
from tests.vllm.conftest import Model


def policy(folder: Path, model: Model, **settings: Any) -> str:
    """The configuration of a policy in training mode."""
    block = {
        "entrypoint": "app.py",
        "base_url": model.base_url,
        "api_key": "",
        "model": model.name,
        "tokenizer": str(model.folder),
        "return_token_id_information": True,
        "replace_developer_role_with_system": True,
        **settings,
    }
    path = folder / f"{model.name}.yaml"
    path.write_text(yaml.safe_dump({"policy_model": {"responses_api_models": {"vllm_model": block}}}))
    return str(path)


def end_of_turn(model: Model) -> int:
    return load_renderer(model.folder).tokenizer.control_tokens["<|im_end|>"]


def with_params(row: dict[str, Any], **params: Any) -> dict[str, Any]:
    return {**row, "responses_create_params": {**row["responses_create_params"], **params}}
