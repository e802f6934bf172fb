"""Several tools, some with plain text, plain dictionaries, a catch-all and errors of their own."""

from typing import Any

from fastapi import Body, FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from pydantic import BaseModel

PRICES = {"adult": 20, "child": 8}


class PriceRequest(BaseModel):
    kind: str
    count: int = 1


class TicketVerifyRequest(BaseVerifyRequest):
    total: int


class TicketOffice(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/price")(self.price)
        app.post("/opening_hours")(self.opening_hours)
        app.post("/sum_up")(self.sum_up)
        app.post("/{anything}")(self.anything)
        return app

    async def price(self, body: PriceRequest) -> dict[str, int]:
        if body.kind not in PRICES:
            raise HTTPException(status_code=400, detail=f"no tickets for {body.kind}")
        return {"price": PRICES[body.kind] * body.count}

    async def opening_hours(self) -> PlainTextResponse:
        return PlainTextResponse("9 to 17")

    async def sum_up(self, body: dict[str, Any] = Body()) -> dict[str, Any]:  # noqa: B008
        return {"total": sum(body["amounts"])}

    async def anything(self, anything: str, request: Request) -> dict[str, Any]:
        return {"unknown": anything, "asked": await request.json()}

    async def verify(self, body: TicketVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float(str(body.total) in body.response.output_text))


if __name__ == "__main__":
    TicketOffice.run_webserver()
