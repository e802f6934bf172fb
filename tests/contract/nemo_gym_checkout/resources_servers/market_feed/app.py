"""A task in the background, begun when the server is made, feeds what tools answer."""

import asyncio
from typing import Any

from fastapi import FastAPI
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.global_config import get_global_config_dict
from pydantic import BaseModel, ConfigDict, PrivateAttr


class PriceResponse(BaseModel):
    price: int
    configured: bool


class MarketFeed(SimpleResourcesServer):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    config: BaseResourcesServerConfig
    _prices: asyncio.Queue[int] = PrivateAttr()
    _configured: bool = PrivateAttr(default=False)
    _feeder: asyncio.Task[None] | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        self._prices = asyncio.Queue(maxsize=8)
        try:
            self._feeder = asyncio.get_running_loop().create_task(self._feed())
        except RuntimeError:  # made outside of a loop, by a test
            return

    async def _feed(self) -> None:
        self._configured = "market_feed" in get_global_config_dict()
        price = 100
        while True:
            await self._prices.put(price)
            price += 1

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/get_price")(self.get_price)
        return app

    async def get_price(self) -> PriceResponse:
        async with asyncio.timeout(5):
            return PriceResponse(price=await self._prices.get(), configured=self._configured)

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        said = [item.output for item in body.response.output if item.type == "function_call_output"]
        return BaseVerifyResponse(**body.model_dump(), reward=float(bool(said) and '"configured":true' in said[-1]))


if __name__ == "__main__":
    MarketFeed.run_webserver()
