"""Updates the weights of running vLLM servers: pause, let the trainer load new weights, label them, resume.

Needs servers started with VLLM_SERVER_DEV_MODE=1. In the mode `keep`, generations pause and continue with the new
weights; with `abort` they end and are continued by a new request; with `wait` they finish first. Each token is labelled
with its weights. vLLM 0.32 drops its caches on every pause, so new weights never use what old ones computed.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from gymnast.errors import GymnastError
from gymnast.wire.http_client import parse_target
from gymnast.wire.http_connection import TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from gymnast.train.versions import PolicyVersions
    from gymnast.wire.http_client import HttpClient

PauseMode = Literal["keep", "abort", "wait"]
_HEADERS: Final = (("content-type", "application/json"),)


class WeightUpdateError(GymnastError):
    """A server failed to take part in a weight update."""


class VllmWeights:
    """The servers of one policy."""

    def __init__(
        self,
        http: HttpClient,
        base_urls: Sequence[str],
        *,
        versions: PolicyVersions | None = None,
        mode: PauseMode = "keep",
        timeout_s: float = 60.0,
    ) -> None:
        """`base_urls` may end in /v1, as a policy's do. `versions` is advanced on every update.

        `timeout_s` applies to each request; pausing with `wait` takes as long as the longest running generation.
        """
        self._http = http
        self._roots = [url.rstrip("/").removesuffix("/v1") for url in base_urls]
        self._versions = versions
        self._mode = mode
        self._timeout_s = timeout_s

    @asynccontextmanager
    async def updating(self, label: str) -> AsyncIterator[None]:
        """Load the new weights inside the block. If it succeeds, they get the label before generation continues.

        All servers are resumed in any case.
        """
        try:
            await self.pause()
            yield
            await self.label(label)
            if self._versions is not None:
                self._versions.advance(label)
        finally:
            await self.resume()

    async def pause(self) -> None:
        """Pause sampling."""
        await self._post_all(f"/pause?mode={self._mode}")

    async def label(self, label: str) -> None:
        """Label the loaded weights."""
        await self._post_all("/update_weight_version", {"new_version": label})

    async def resume(self) -> None:
        """Resume sampling."""
        await self._post_all("/resume")

    async def _post_all(self, path: str, body: Any = None) -> None:
        """Send the request to every server, even if another one fails."""
        results = await asyncio.gather(*(self._post(root, path, body) for root in self._roots), return_exceptions=True)
        errors = [str(result) for result in results if isinstance(result, BaseException)]
        if errors:
            raise WeightUpdateError(f"{len(errors)} of {len(results)} servers failed: {'; '.join(errors)}")

    async def _post(self, root: str, path: str, body: Any) -> None:
        data = orjson.dumps(body) if body is not None else None
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._http.request("POST", parse_target(root + path), _HEADERS, data)
        except TimeoutError as error:
            raise WeightUpdateError(f"{root}{path} did not answer within {self._timeout_s:g} s") from error
        except TransportError as error:
            raise WeightUpdateError(f"{root}{path}: {error}") from error
        if not 200 <= reply.status < 300:
            hint = "; start the server with VLLM_SERVER_DEV_MODE=1" if reply.status == 404 else ""
            raise WeightUpdateError(f"{root}{path} answered {reply.status}: {reply.body[:200]!r}{hint}")
