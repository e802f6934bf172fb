"""The tasks of `gymnast demo`: the example rows of every shipped environment, each routed to its agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gymnast.store.lines import numbered_lines
from gymnast.types.task import AGENT_REF

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.config import Config

_ENVIRONMENTS: Final = (
    "mcqa",
    "example_single_tool_call",
    "example_multi_step",
    "example_session_state_mgmt",
    "example_multi_turn_gymnasium",
)
DEMO_CONFIGS: Final = (
    *(f"resources_servers/{name}/configs/{name}.yaml" for name in _ENVIRONMENTS),
    "responses_api_models/scripted_model/configs/demo.yaml",
)


def write_demo_tasks(config: Config, target: Path) -> Path:
    """One file with the example rows of every agent, which says in each row who runs it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        for instance in config.instances.values():
            for dataset in instance.datasets:
                source = config.roots.require(dataset["jsonl_fpath"], "the dataset")
                for _, line in numbered_lines(source):
                    ref = {"type": "responses_api_agents", "name": instance.name}
                    out.write(orjson.dumps({**orjson.loads(line), AGENT_REF: ref}) + b"\n")
    return target
