"""Reset and step, for agents that play turn by turn: walk to the goal without falling off."""

from typing import Any

from fastapi import FastAPI, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr


class ResetRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")
    goal: int


class StepRequest(ResetRequest, BaseVerifyRequest):
    pass


class ResetReply(BaseModel):
    observation: str | None
    info: dict[str, Any] = Field(default_factory=dict)


class StepReply(ResetReply):
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


class DiceWalk(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    _places: dict[str, int] = PrivateAttr(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = FastAPI()
        self.setup_session_middleware(app)
        app.post("/reset")(self.reset)
        app.post("/step")(self.step)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        return app

    async def reset(self, request: Request, body: ResetRequest) -> ResetReply:
        self._places[request.session[SESSION_ID_KEY]] = 0
        return ResetReply(observation=f"You are at 0. Walk to {body.goal}: say how far.")

    async def step(self, request: Request, body: StepRequest) -> StepReply:
        session = request.session[SESSION_ID_KEY]
        words = body.response.output_text.split()
        self._places[session] += int(words[-1]) if words and words[-1].lstrip("-").isdigit() else 0
        place = self._places[session]
        if place == body.goal:
            del self._places[session]
            return StepReply(observation=None, reward=1.0, terminated=True)
        if place > body.goal:
            del self._places[session]
            return StepReply(observation="You fell off.", terminated=True)
        return StepReply(observation=f"You are at {place}.", info={"place": place})

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        raise NotImplementedError("played, not verified")


if __name__ == "__main__":
    DiceWalk.run_webserver()
