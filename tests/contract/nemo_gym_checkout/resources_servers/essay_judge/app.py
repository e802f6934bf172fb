"""A judge model decides. A judge that fails leaves no reward."""

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import call_judge
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)


class EssayJudgeConfig(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class EssayVerifyRequest(BaseVerifyRequest):
    rubric: str


class EssayVerifyResponse(EssayVerifyRequest, BaseVerifyResponse):
    judge_said: str


class EssayJudge(SimpleResourcesServer):
    config: EssayJudgeConfig

    async def verify(self, body: EssayVerifyRequest) -> EssayVerifyResponse:
        asked = self.config.judge_responses_create_params.model_copy(deep=True)
        text = f"Rubric: {body.rubric}\nEssay: {body.response.output_text}\nAnswer yes or no."
        asked.input = [NeMoGymEasyInputMessage(role="user", content=text)]
        opinion = await call_judge(
            self.server_client,
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=asked,
            response_model=NeMoGymResponse,
        )
        said = opinion.output_text
        return EssayVerifyResponse(**body.model_dump(), reward=float(said.startswith("yes")), judge_said=said)


if __name__ == "__main__":
    EssayJudge.run_webserver()
