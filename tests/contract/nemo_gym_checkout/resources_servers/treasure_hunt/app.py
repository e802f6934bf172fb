"""Several steps: each clue names the next place; the last one says the word."""

from fastapi import FastAPI
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from pydantic import BaseModel

CLUES = {"harbour": "go to the mill", "mill": "go to the tower", "tower": "the word is amber"}


class LookRequest(BaseModel):
    place: str


class LookResponse(BaseModel):
    clue: str


class HuntRunRequest(BaseRunRequest):
    word: str


class HuntVerifyRequest(HuntRunRequest, BaseVerifyRequest):
    pass


class HuntVerifyResponse(HuntVerifyRequest, BaseVerifyResponse):
    places: list[str]
    steps: int


class TreasureHunt(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/look")(self.look)
        return app

    async def look(self, body: LookRequest) -> LookResponse:
        return LookResponse(clue=CLUES.get(body.place, "nothing here"))

    async def verify(self, body: HuntVerifyRequest) -> HuntVerifyResponse:
        places = [
            LookRequest.model_validate_json(item.arguments).place
            for item in body.response.output
            if item.type == "function_call" and item.name == "look"
        ]
        found = body.word in body.response.output_text
        return HuntVerifyResponse(**body.model_dump(), reward=float(found), places=places, steps=len(places))


if __name__ == "__main__":
    TreasureHunt.run_webserver()
