"""Several rewards in one: for the amount, for the unit, and their mean."""

import re

from nemo_gym.base_resources_server import (
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    SimpleResourcesServer,
)


class RecipeVerifyRequest(BaseVerifyRequest):
    amount: int
    unit: str


class RecipeVerifyResponse(BaseMultiRewardVerifyResponse):
    amount_reward: float
    unit_reward: float


class RecipeChecker(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: RecipeVerifyRequest) -> RecipeVerifyResponse:
        text = body.response.output_text
        parts = {
            "amount_reward": float(str(body.amount) in re.findall(r"\d+", text)),
            "unit_reward": float(body.unit in text),
        }
        reward = sum(parts.values()) / len(parts)
        return RecipeVerifyResponse(**body.model_dump(), reward=reward, reward_components=parts, **parts)


if __name__ == "__main__":
    RecipeChecker.run_webserver()
