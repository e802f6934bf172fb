"""Metrics of its own, beside the usual ones: pass@k by difficulty, and the key ones named."""

from typing import Any

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.global_config import TASK_INDEX_KEY_NAME
from nemo_gym.reward_profile import compute_pass_majority_metrics, compute_subset_metrics, highest_k_metrics


class SpellingVerifyRequest(BaseVerifyRequest):
    word: str
    level: str = "easy"


class SpellingVerifyResponse(SpellingVerifyRequest, BaseVerifyResponse):
    spelt: str | None = None


class SpellingBee(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: SpellingVerifyRequest) -> SpellingVerifyResponse:
        words = body.response.output_text.split()
        spelt = words[-1] if words else None
        return SpellingVerifyResponse(**body.model_dump(), reward=float(spelt == body.word), spelt=spelt)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        metrics, _, _, _ = compute_pass_majority_metrics(tasks, answer_key="spelt")
        subsets = compute_subset_metrics(tasks, "level", answer_key="spelt")
        per_task = [{TASK_INDEX_KEY_NAME: task[0].get(TASK_INDEX_KEY_NAME, 0), "tries": len(task)} for task in tasks]
        return {**metrics, **subsets, "per_task_metrics": per_task}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        return highest_k_metrics(agent_metrics, "pass@{k}", exclude_names=["no_answer"])


if __name__ == "__main__":
    SpellingBee.run_webserver()
