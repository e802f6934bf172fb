"""Rows and configured datasets for the tests of data preparation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gymnast.config import load_config, read_environ
from gymnast.data.hub import Hub
from gymnast.data.prepare import PrepareRequest, PrepareResult, prepare

AGENT = "mcqa_simple_agent"
SERVER = {"mcqa": {"resources_servers": {"mcqa": {"entrypoint": "app.py", "domain": "knowledge"}}}}


def row(text: str = "What is it?", **fields: Any) -> dict[str, Any]:
    """A row that asks something."""
    return {"responses_create_params": {"input": text}, **fields}


def train(path: str, **fields: Any) -> dict[str, Any]:
    """The configured entry of a training dataset."""
    return {"name": "train", "type": "train", "jsonl_fpath": path, "license": "MIT", **fields}


def agent_with(*datasets: dict[str, Any], name: str = AGENT) -> dict[str, Any]:
    """An agent that has these datasets."""
    ref = {"resources_server": {"type": "resources_servers", "name": "mcqa"}}
    model = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
    block = {"entrypoint": "app.py", **ref, **model, "datasets": list(datasets)}
    return {name: {"responses_api_agents": {"simple_agent": block}}}


def write_config(folder: Path, agents: dict[str, Any]) -> Path:
    """`c.yaml` with these agents and the server they need."""
    path = folder / "c.yaml"
    path.write_text(yaml.safe_dump({**SERVER, **agents}))
    return path


def prepare_in(
    folder: Path,
    *datasets: dict[str, Any],
    agents: dict[str, Any] | None = None,
    hub: Hub | None = None,
    mode: str = "train_preparation",
    **options: Any,
) -> PrepareResult:
    """Prepare the datasets of one agent, or of several, into `out`."""
    path = write_config(folder, agents or agent_with(*datasets))
    config = load_config(environ=read_environ(), config_paths=[str(path)], cwd=folder, stub_policy=True).require_valid()
    return prepare(config, PrepareRequest(mode, folder / "out", **options), hub or Hub(), silent)


def silent(_: str) -> None:
    """Nobody listens."""
