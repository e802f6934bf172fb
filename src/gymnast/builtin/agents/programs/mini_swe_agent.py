"""mini-swe-agent's default agent with its own prompts, in the rollout's folder.

It works in a shell, so the environment's tools are commands there: the task's text says how they are called.
"""

import os
import sys
from pathlib import Path

from minisweagent.agents.default import DefaultAgent
from minisweagent.config import get_config_from_spec
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

config = get_config_from_spec("mini.yaml")
settings = {name: config["agent"][name] for name in ("system_template", "instance_template")}
model = LitellmModel(
    **{
        **config.get("model", {}),
        "model_name": f"openai/{os.environ['OPENAI_MODEL']}",
        "cost_tracking": "ignore_errors",
    }
)
environment = LocalEnvironment(**config.get("environment", {}))
result = DefaultAgent(model, environment, **settings, step_limit=0, cost_limit=0).run(sys.stdin.read())
print(result)
if result.get("exit_status") != "Submitted":
    sys.exit(f"mini-swe-agent ended with {result.get('exit_status')}")
if result.get("submission", "").strip():
    Path(os.environ["GYMNAST_ANSWER_FILE"]).write_text(result["submission"])
