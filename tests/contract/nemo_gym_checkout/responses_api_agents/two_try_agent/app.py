"""An agent with a `run` of its own: it is told when its first answer was wrong, and may try again."""

from typing import Any

from fastapi import Request
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    accumulate_response_usage,
)
from nemo_gym.server_utils import get_response_json, raise_for_status
from pydantic import ConfigDict


class TwoTryAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    hint: str = "That was wrong. Try again."


class TwoTryRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class TwoTryVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class TwoTryVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")
    tries: int


class TwoTryAgent(SimpleResponsesAPIAgent):
    config: TwoTryAgentConfig

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:  # noqa: B008
        path = self.url_path_for_request("/v1/responses", None)
        reply = await self.server_client.post(server_name=self.config.model_server.name, url_path=path, json=body)
        await raise_for_status(reply)
        return NeMoGymResponse.model_validate(await get_response_json(reply))

    async def run(self, request: Request, body: TwoTryRunRequest) -> TwoTryVerifyResponse:  # type: ignore[override]
        seeded = await self.server_client.post(
            server_name=self.config.resources_server.name,
            url_path="/seed_session",
            json=body.model_dump(),
            cookies=request.cookies,
        )
        await raise_for_status(seeded)
        params = body.responses_create_params.model_copy(deep=True)
        if isinstance(params.input, str):
            params.input = [NeMoGymEasyInputMessage(role="user", content=params.input)]
        verdict: dict[str, Any] = {}
        usage = None
        for tried in (1, 2):
            response = await self.responses(params)
            usage = accumulate_response_usage(usage, response.usage)
            asked = TwoTryVerifyRequest.model_validate({**body.model_dump(), "response": response})
            reply = await self.server_client.post(
                server_name=self.config.resources_server.name, url_path="/verify", json=asked, cookies=seeded.cookies
            )
            await raise_for_status(reply)
            verdict = {**await get_response_json(reply), "tries": tried}
            if verdict["reward"] == 1.0:
                break
            params.input += [*response.output, NeMoGymEasyInputMessage(role="user", content=self.config.hint)]
        verdict["response"]["usage"] = usage.model_dump() if usage else None
        return TwoTryVerifyResponse.model_validate(verdict)


if __name__ == "__main__":
    TwoTryAgent.run_webserver()
