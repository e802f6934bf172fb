"""A client of OpenAI-compatible endpoints, for model servers and judges that have their own URL.

A busy endpoint is retried with backoff a bounded number of times; then its error is raised.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import ClientResponse
from pydantic import BaseModel, Field

from gymnast.compat.nemo_gym import server_utils

RATE_LIMIT_ERROR_CODES: Final = [429, 502, 503, 504, 520]
RETRY_ERROR_CODES: Final = [*RATE_LIMIT_ERROR_CODES, 500]
MAX_TRIES: Final = 3
MAX_BUSY_TRIES: Final = 12
"""About four minutes, with pauses that double up to 30 s."""
MAX_PAUSE_S: Final = 30.0


class NeMoGymAsyncOpenAI(BaseModel):
    base_url: str
    api_key: str
    internal: bool = False
    default_headers: dict[str, str] = Field(default_factory=dict)

    async def _request(self, **request_kwargs: Any) -> ClientResponse:
        headers = {"authorization": f"Bearer {self.api_key}", **self.default_headers}
        headers |= dict(request_kwargs.pop("headers", None) or {})
        return await server_utils.request(_internal=self.internal, headers=headers, **request_kwargs)

    async def _request_with_retry(self, **request_kwargs: Any) -> ClientResponse:
        tries = busy = 0
        while True:
            response = await self._request(**request_kwargs)
            if response.status not in RETRY_ERROR_CODES:
                return response
            busy += response.status in RATE_LIMIT_ERROR_CODES
            tries += response.status not in RATE_LIMIT_ERROR_CODES
            if busy >= MAX_BUSY_TRIES or tries >= MAX_TRIES:
                return response
            await asyncio.sleep(_pause_s(busy + tries, response.headers))

    async def _raise_for_status(self, response: ClientResponse, request_kwargs: dict[str, Any]) -> None:
        await server_utils.raise_for_status(response)

    async def _call(self, path: str, method: str = "POST", **more: Any) -> Any:
        request = {"method": method, "url": f"{self.base_url.rstrip('/')}/{path}", **more}
        response = await self._request_with_retry(**request)
        await self._raise_for_status(response, request)
        return await server_utils.get_response_json(response)

    async def create_models(self) -> Any:
        return await self._call("models", "GET")

    async def create_chat_completion(self, **kwargs: Any) -> Any:
        return await self._call("chat/completions", json=kwargs)

    async def create_completion(self, **kwargs: Any) -> Any:
        return await self._call("completions", json=kwargs)

    async def create_response(self, **kwargs: Any) -> Any:
        return await self._call("responses", json=kwargs)

    async def create_tokenize(self, **kwargs: Any) -> Any:
        """Tokenize a prompt, where the endpoint supports it; the route is outside of `/v1`."""
        base = self.base_url.rstrip("/").removesuffix("/v1")
        return await self.model_copy(update={"base_url": base})._call("tokenize", json=kwargs)  # noqa: SLF001 - itself


def _pause_s(attempts: int, headers: Mapping[str, str]) -> float:
    request = headers.get("Retry-After", "")
    retry_after_s = float(request) if request.replace(".", "", 1).isdigit() else 0.0
    backoff = min(0.5 * 2.0**attempts, MAX_PAUSE_S) * (0.5 + random.random())  # noqa: S311 - jitter
    return min(max(backoff, retry_after_s), MAX_PAUSE_S)
