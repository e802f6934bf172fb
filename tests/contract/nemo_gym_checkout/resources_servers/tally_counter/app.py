"""A counter for each session, kept by the session's id."""

from fastapi import FastAPI, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import BaseModel, Field


class SeedRequest(BaseSeedSessionRequest):
    initial_count: int


class AddRequest(BaseModel):
    count: int


class AddResponse(BaseModel):
    success: bool


class CountResponse(BaseModel):
    count: int


class TallyVerifyRequest(BaseVerifyRequest):
    expected_count: int


class TallyCounter(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    counters: dict[str, int] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/add")(self.add)
        app.post("/get_count")(self.get_count)
        return app

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:  # type: ignore[override]
        self.counters.setdefault(request.session[SESSION_ID_KEY], body.initial_count)
        return BaseSeedSessionResponse()

    async def add(self, request: Request, body: AddRequest) -> AddResponse:
        self.counters[request.session[SESSION_ID_KEY]] += body.count
        return AddResponse(success=True)

    async def get_count(self, request: Request) -> CountResponse:
        return CountResponse(count=self.counters[request.session[SESSION_ID_KEY]])

    async def verify(self, request: Request, body: TallyVerifyRequest) -> BaseVerifyResponse:  # type: ignore[override]
        count = self.counters.pop(request.session[SESSION_ID_KEY], None)
        return BaseVerifyResponse(**body.model_dump(), reward=float(count == body.expected_count))


if __name__ == "__main__":
    TallyCounter.run_webserver()
