"""Runs over a scripted policy whose calls have known tokens and prices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import gymnast
from gymnast.store.manifest import Manifest, read_manifest
from gymnast.store.paths import RunPaths
from tests.helpers.commands import SCRIPTED

MODEL: Final = "policy_model.responses_api_models.scripted_model"
PRICES: Final = f"++{MODEL}.prices={{input: 1.0, output: 2.0}}"
USAGE: Final = {"input_tokens": 100, "output_tokens": 10}
REPLY: Final = {"text": "\\boxed{B}", "usage": USAGE}


def metered_policy(folder: Path, *replies: Any, prices: bool = True, **settings: Any) -> dict[str, Any]:
    """The configuration of a policy with these replies, one a turn; by default 110 tokens a call, which cost 120e-6."""
    script = folder / "script.json"
    script.write_text(json.dumps(list(replies) or [REPLY]))
    overrides = [f"++{MODEL}.{name}={value}" for name, value in {"script": script, **settings}.items()]
    if prices:
        overrides.append(PRICES)
    return {"environments": ["mcqa"], "config_paths": [SCRIPTED], "overrides": overrides}


async def collect_all(tasks: Path, output: Path, configuration: dict[str, Any], **options: Any) -> list[Any]:
    """The records of a run, one rollout at a time unless told otherwise."""
    settings = {"concurrency": 1, **configuration, **options}
    return [record async for record in gymnast.collect(tasks, output, **settings)]


def manifest_of(output: Path) -> Manifest:
    manifest = read_manifest(RunPaths(output).manifest)
    assert manifest is not None
    return manifest
