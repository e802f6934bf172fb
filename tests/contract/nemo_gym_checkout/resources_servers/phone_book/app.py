"""Tools that are offered over MCP too (`expose_tools_over_mcp: true`)."""

from typing import Any

from fastapi import FastAPI, HTTPException, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import BaseModel, ConfigDict, PrivateAttr


class SeedRequest(BaseModel):
    model_config = ConfigDict(extra="allow")
    book: dict[str, str]


class LookUpRequest(BaseModel):
    name: str


class PhoneVerifyRequest(BaseVerifyRequest):
    number: str


class PhoneVerifyResponse(PhoneVerifyRequest, BaseVerifyResponse):
    tools_used: list[str]


class PhoneBook(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    _books: dict[str, dict[str, str]] = PrivateAttr(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/look_up")(self.look_up)
        return app

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:  # type: ignore[override]
        self._books[request.session[SESSION_ID_KEY]] = body.book
        return BaseSeedSessionResponse()

    async def look_up(self, request: Request, body: LookUpRequest) -> dict[str, Any]:
        """The number of somebody."""
        number = self._books[request.session[SESSION_ID_KEY]].get(body.name)
        if number is None:
            raise HTTPException(status_code=404, detail=f"{body.name} is not listed")
        return {"number": number}

    async def verify(self, body: PhoneVerifyRequest) -> PhoneVerifyResponse:
        used = [item.name for item in body.response.output if item.type == "function_call"]
        found = "look_up" in used and body.number in body.response.output_text
        return PhoneVerifyResponse(**body.model_dump(), reward=float(found), tools_used=used)


if __name__ == "__main__":
    PhoneBook.run_webserver()
