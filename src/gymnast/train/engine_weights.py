"""Updates the weights of running inference servers: pause, load, label, resume. One interface for all engines.

await weights.update("step-7", folder)              # the servers load a checkpoint from a shared folder
async with weights.updating("step-7"): transfer()   # the trainer transfers the weights itself
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from gymnast.errors import GymnastError, UserError
from gymnast.train.arguments import require_seconds
from gymnast.wire.http_client import parse_target
from gymnast.wire.http_connection import TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from os import PathLike

    from gymnast.train.versions import PolicyVersions
    from gymnast.wire.http_client import HttpClient

PauseMode = Literal["keep", "abort", "wait"]
_MAX_QUOTED: Final = 300


class WeightUpdateError(GymnastError):
    """A server failed to take part in a weight update."""


class EngineWeights(ABC):
    """The servers of one policy."""

    modes: tuple[PauseMode, ...] = ("keep", "abort", "wait")
    hint_404 = ""
    """What to do if a server does not know a route."""
    hint_500 = ""
    """Where to look if a server fails without a reason."""

    def __init__(
        self,
        http: HttpClient,
        base_urls: Sequence[str],
        *,
        versions: PolicyVersions | None = None,
        mode: PauseMode = "keep",
        timeout_s: float = 60.0,
        load_timeout_s: float = 1800.0,
        api_key: str | None = None,
    ) -> None:
        """`base_urls` may end in /v1, as a policy's do. `versions` is advanced on every update.

        `timeout_s` applies to each request except loading; pausing with `wait` takes as long as the longest running
        generation.
        """
        if mode not in self.modes:
            hint = f"use {', '.join(self.modes)}"
            raise UserError(f"mode {mode!r} is not supported by {type(self).__name__}", next=hint)
        _require_addresses(base_urls)
        require_seconds("timeout_s", timeout_s)
        require_seconds("load_timeout_s", load_timeout_s)
        self._http = http
        self._roots = [url.rstrip("/").removesuffix("/v1") for url in base_urls]
        self._versions = versions
        self._mode = mode
        self._timeout_s = timeout_s
        self._load_timeout_s = load_timeout_s
        self._unusable: set[str] = set()
        """Servers whose weights are being replaced, or could not be."""
        authorization = (("authorization", f"Bearer {api_key}"),) if api_key is not None else ()
        self._headers = (("content-type", "application/json"), *authorization)

    async def update(self, label: str, folder: str | PathLike[str]) -> None:
        """Load a checkpoint from a folder that all servers can read, and label it. Generation pauses meanwhile.

        If some servers fail, the others have the new weights and label and are resumed, and WeightUpdateError says
        which failed: update again, or stop. A server without usable weights stays paused until an update succeeds.
        """
        async with self._pause_servers():
            await self._on_all(lambda root: self._load_and_label(root, str(folder), label))
            self._advance(label)

    @asynccontextmanager
    async def updating(self, label: str) -> AsyncIterator[None]:
        """Load the new weights inside the block. If it succeeds, they get the label before generation continues.

        All servers that have usable weights are resumed in any case.
        """
        async with self._pause_servers():
            yield
            await self.label(label)
            self._advance(label)

    async def pause(self) -> None:
        """Pause sampling."""
        await self._on_all(self._pause)

    async def label(self, label: str) -> None:
        """Label the loaded weights."""
        await self._on_all(lambda root: self._label(root, label))

    async def resume(self) -> None:
        """Resume sampling, except on servers whose last load failed half-way."""
        await self._on_all(self._resume, [root for root in self._roots if root not in self._unusable])

    # --- what engines differ in --------------------------------------------------------------------------------------

    @abstractmethod
    async def _pause(self, root: str) -> None: ...

    @abstractmethod
    async def _load_and_label(self, root: str, folder: str, label: str) -> None: ...

    @abstractmethod
    async def _label(self, root: str, label: str) -> None: ...

    @abstractmethod
    async def _resume(self, root: str) -> None: ...

    # --- requests ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _pause_servers(self) -> AsyncIterator[None]:
        try:
            await self.pause()
            yield
        except BaseException as error:
            try:
                await self.resume()
            except WeightUpdateError as second:
                error.add_note(f"generation could not be resumed either: {second}")
            raise
        await self.resume()

    def _advance(self, label: str) -> None:
        if self._versions is not None:
            self._versions.advance(label)

    @contextmanager
    def _replacing_weights(self, root: str) -> Iterator[None]:
        """For engines that drop the old weights first: if this fails, the server has none to sample with."""
        self._unusable.add(root)
        try:
            yield
        except WeightUpdateError as error:
            raise WeightUpdateError(f"{error}; it stays paused until an update succeeds") from error
        self._unusable.discard(root)

    async def _on_all(self, work: Callable[[str], Awaitable[object]], roots: Sequence[str] | None = None) -> None:
        """Do it on every server, even if another one fails."""
        servers = self._roots if roots is None else roots
        results = await asyncio.gather(*map(work, servers), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, WeightUpdateError):
                raise result
        errors = [str(result) for result in results if isinstance(result, BaseException)]
        if errors:
            raise WeightUpdateError(f"{len(errors)} of {len(results)} servers failed: {'; '.join(errors)}")

    async def _post(
        self, root: str, path: str, body: Any = None, *, timeout_s: float | None = None, idempotent: bool = True
    ) -> Any:
        """The parsed reply, or None if it has no JSON.

        An idempotent request is sent again if the connection was closed: vLLM closes it after an error, and then the
        next request, which resumes generation, must not be lost.
        """
        data = orjson.dumps(body) if body is not None else None
        limit_s = timeout_s or self._timeout_s
        try:
            async with asyncio.timeout(limit_s):
                reply = await self._http.request(
                    "POST", parse_target(root + path), self._headers, data, idempotent=idempotent
                )
        except TimeoutError as error:
            raise WeightUpdateError(f"{root}{path} did not answer within {limit_s:g} s") from error
        except TransportError as error:
            raise WeightUpdateError(f"{root}{path}: {error}") from error
        if not 200 <= reply.status < 300:
            hint = {404: self.hint_404, 500: self.hint_500}.get(reply.status, "")
            raise WeightUpdateError(f"{root}{path} answered {reply.status}: {reply.body[:_MAX_QUOTED]!r}{hint}")
        try:
            return orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            return None


def _require_addresses(base_urls: Any) -> None:
    """Raise UserError unless these are the addresses of servers."""
    if isinstance(base_urls, str):
        raise UserError(f"base_urls must be a list of addresses, got {base_urls!r}", next=f"pass [{base_urls!r}]")
    if not base_urls:
        raise UserError("base_urls is empty: list the servers that get the weights")
    for url in base_urls:
        try:
            parse_target(url)
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"base_urls: {error}", next="e.g. http://localhost:8000/v1") from error
