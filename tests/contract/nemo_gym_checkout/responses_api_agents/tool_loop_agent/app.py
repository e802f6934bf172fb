"""An agent that asks itself for a whole trajectory, as most do: cookies go along with every call and come back."""

import json
from typing import Any

from fastapi import Request, Response
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, Body, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import get_response_json, raise_for_status
from pydantic import ConfigDict


class ToolLoopAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int = 10


class ToolLoopRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class ToolLoopAgent(SimpleResponsesAPIAgent):
    config: ToolLoopAgentConfig

    async def responses(  # type: ignore[override]
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008
    ) -> NeMoGymResponse:
        body = body.model_copy(deep=True)
        if isinstance(body.input, str):
            body.input = [NeMoGymEasyInputMessage(role="user", content=body.input)]
        said: list[Any] = []
        env_cookies: Any = request.cookies
        model_cookies: Any = None
        for _ in range(self.config.max_steps):
            asked = body.model_copy(update={"input": [*body.input, *said]})
            reply = await self.server_client.post(
                server_name=self.config.model_server.name, url_path="/v1/responses", json=asked, cookies=model_cookies
            )
            await raise_for_status(reply)
            model_cookies = reply.cookies
            answer = NeMoGymResponse.model_validate(await get_response_json(reply))
            said += answer.output
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                break
            for call in calls:
                result = await self.server_client.post(
                    server_name=self.config.resources_server.name,
                    url_path=f"/{call.name}",
                    json=json.loads(call.arguments),
                    cookies=env_cookies,
                )
                env_cookies = result.cookies
                output = (await result.content.read()).decode()
                said.append(NeMoGymFunctionCallOutput(type="function_call_output", call_id=call.call_id, output=output))
        for name, value in (*env_cookies.items(), *model_cookies.items()):
            response.set_cookie(name, value)
        answer.output = said
        return answer

    async def run(self, request: Request, body: ToolLoopRunRequest) -> BaseVerifyResponse:  # type: ignore[override]
        environment, row = self.config.resources_server.name, body.model_dump()
        seeded = await self.server_client.post(
            server_name=environment, url_path="/seed_session", json=row, cookies=request.cookies
        )
        await raise_for_status(seeded)
        reply = await self.server_client.post(
            server_name=self.config.name,
            url_path="/v1/responses",
            json=body.responses_create_params,
            cookies=seeded.cookies,
        )
        await raise_for_status(reply)
        verdict = await self.server_client.post(
            server_name=environment,
            url_path="/verify",
            json={**row, "response": await reply.json()},
            cookies=reply.cookies,
        )
        await raise_for_status(verdict)
        return BaseVerifyResponse.model_validate(await verdict.json())


if __name__ == "__main__":
    ToolLoopAgent.run_webserver()
