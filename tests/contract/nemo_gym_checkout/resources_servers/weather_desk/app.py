"""One tool; an answer is right when the tool was called for the right city."""

import json

from fastapi import FastAPI
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from pydantic import BaseModel


class WeatherDeskConfig(BaseResourcesServerConfig):
    REVERIFY_MODE = ReverifyMode.STATELESS


class WeatherRequest(BaseModel):
    city: str


class WeatherResponse(BaseModel):
    city: str
    weather: str


class WeatherRunRequest(BaseRunRequest):
    expected_city: str


class WeatherVerifyRequest(WeatherRunRequest, BaseVerifyRequest):
    pass


class WeatherVerifyResponse(BaseVerifyResponse):
    expected_city: str
    asked_for: str | None = None


class WeatherDesk(SimpleResourcesServer):
    config: WeatherDeskConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/get_weather")(self.get_weather)
        return app

    async def get_weather(self, body: WeatherRequest) -> WeatherResponse:
        """The weather of a city."""
        return WeatherResponse(city=body.city, weather=f"It is sunny in {body.city}.")

    async def verify(self, body: WeatherVerifyRequest) -> WeatherVerifyResponse:
        calls = [item for item in body.response.output if item.type == "function_call"]
        asked = json.loads(calls[-1].arguments).get("city") if calls else None
        return WeatherVerifyResponse(**body.model_dump(), reward=float(asked == body.expected_city), asked_for=asked)


if __name__ == "__main__":
    WeatherDesk.run_webserver()
