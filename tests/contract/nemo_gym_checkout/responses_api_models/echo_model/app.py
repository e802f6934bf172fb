"""A model server of its own: says again, in capitals, what it was told last. Streams come by themselves."""

from time import time
from uuid import uuid4

from fastapi import Request
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, Body, SimpleResponsesAPIModel
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessage,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseInputTokensDetails,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
    NeMoGymResponseOutputTokensDetails,
    NeMoGymResponseUsage,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import Field


class EchoModelConfig(BaseResponsesAPIModelConfig):
    shout: bool = True


class EchoModel(SimpleResponsesAPIModel):
    config: EchoModelConfig
    sessions: set[str] = Field(default_factory=set)

    def said(self, text: str) -> str:
        return text.upper() if self.config.shout else text

    async def responses(  # type: ignore[override]
        self,
        request: Request,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008
    ) -> NeMoGymResponse:
        self.sessions.add(request.session[SESSION_ID_KEY])
        heard = body.input if isinstance(body.input, str) else body.input[-1].content
        if heard == "fail":
            raise RuntimeError("told to fail")
        text = NeMoGymResponseOutputText(annotations=[], text=self.said(str(heard)))
        message = NeMoGymResponseOutputMessage(id=f"msg_{uuid4().hex}", content=[text])
        return NeMoGymResponse(
            id=f"resp_{uuid4().hex}",
            created_at=int(time()),
            model=body.model or "echo",
            object="response",
            output=[message],
            tool_choice=body.tool_choice,
            tools=body.tools,
            parallel_tool_calls=body.parallel_tool_calls,
            usage=NeMoGymResponseUsage(
                input_tokens=len(str(heard)),
                input_tokens_details=NeMoGymResponseInputTokensDetails(cached_tokens=0),
                output_tokens=len(str(heard)),
                output_tokens_details=NeMoGymResponseOutputTokensDetails(reasoning_tokens=0),
                total_tokens=2 * len(str(heard)),
            ),
        )

    async def chat_completions(
        self,
        body: NeMoGymChatCompletionCreateParamsNonStreaming = Body(),  # noqa: B008
    ) -> NeMoGymChatCompletion:
        text = self.said(str(body.messages[-1]["content"]))
        message = NeMoGymChatCompletionMessage(role="assistant", content=text, tool_calls=None)
        choice = NeMoGymChoice(index=0, finish_reason="stop", message=message)
        return NeMoGymChatCompletion(
            id=f"chatcmpl-{uuid4().hex}", created=int(time()), model="echo", object="chat.completion", choices=[choice]
        )


if __name__ == "__main__":
    EchoModel.run_webserver()
