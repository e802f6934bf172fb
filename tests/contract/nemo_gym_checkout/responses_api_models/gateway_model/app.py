"""A model server in front of an endpoint that speaks Chat Completions only."""

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.responses_converter import ResponsesConverter
from pydantic import PrivateAttr


class GatewayModelConfig(BaseResponsesAPIModelConfig):
    base_url: str
    api_key: str
    model: str


class GatewayModel(SimpleResponsesAPIModel):
    config: GatewayModelConfig
    _client: NeMoGymAsyncOpenAI = PrivateAttr()
    _converter: ResponsesConverter = PrivateAttr()

    def model_post_init(self, context: object) -> None:
        self._client = NeMoGymAsyncOpenAI(base_url=self.config.base_url, api_key=self.config.api_key)
        self._converter = ResponsesConverter(return_token_id_information=False)

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:  # noqa: B008
        completion = await self.chat_completions(self._converter.responses_to_chat_completion_create_params(body))
        return self._converter.chat_completion_to_response(body, completion)

    async def chat_completions(
        self,
        body: NeMoGymChatCompletionCreateParamsNonStreaming = Body(),  # noqa: B008
    ) -> NeMoGymChatCompletion:
        asked = {**body.model_dump(exclude_unset=True), "model": self.config.model}
        return NeMoGymChatCompletion.model_validate(await self._client.create_chat_completion(**asked))


if __name__ == "__main__":
    GatewayModel.run_webserver()
