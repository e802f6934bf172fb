"""verl's own engines as an endpoint that Gymnast's model server asks: token ids in, token ids and logprobs out.

It answers `/inference/v1/generate` on a loopback port that the kernel chooses, and passes each call to verl's public
`LLMServerClient.generate`, which balances the load and knows about sleeping and updated weights.
"""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import orjson

from gymnast.runtime.listener import Listener
from gymnast.runtime.listening import reserve
from gymnast.train.continuations import Continuations
from gymnast.wire.asgi import ClientGone, Guarded, read_body, send_reply
from gymnast.wire.message import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from gymnast.types.json import JsonObject
    from gymnast.wire.asgi import AsgiScope, Receive, Send

GENERATE: Final = "/inference/v1/generate"
_NOT_A_LOGPROB: Final = -9999.0


class LlmClient(Protocol):
    """What is needed of verl's LLMServerClient."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any: ...


class VerlEngine:
    """Use as `async with VerlEngine(llm_client, window=…) as engine`; its address is `engine.url`."""

    def __init__(self, client: LlmClient, *, window: int, host: str = "127.0.0.1") -> None:
        self.token = secrets.token_hex(16)
        """What a model server must send: the port is open to every user of the machine."""
        self._client = client
        self._window = window
        self._continued = Continuations()
        self._listener = Listener(Guarded(self._answer, self.token), reserve(host))

    @property
    def url(self) -> str:
        return f"{self._listener.url}/v1"

    async def __aenter__(self) -> Self:
        await self._listener.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._listener.__aexit__(kind, error, trace)

    async def _answer(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            raw = await read_body(receive)
        except ClientGone:
            return
        await send_reply(send, await self._reply(scope["method"], scope["path"], raw))

    async def _reply(self, method: str, path: str, raw: bytes) -> Reply:
        if (method, path) == ("GET", "/health"):
            return Reply(200, {})
        if (method, path) != ("POST", GENERATE):
            return Reply(404, {"detail": "Not Found"})
        try:
            asked = orjson.loads(raw)
            prompt, params = asked["token_ids"], sampling_params(asked["sampling_params"])
        except (KeyError, TypeError, ValueError) as error:
            return Reply(400, {"detail": f"not a request for tokens: {error!r}"})
        room = self._window - len(prompt)
        if room < 1:
            said = f"{len(prompt)} prompt tokens leave no room: the maximum model length is {self._window}"
            return Reply(400, {"detail": said})
        params["max_tokens"] = min(params.get("max_tokens") or room, room)
        name = self._continued.name_of(prompt) or secrets.token_hex(16)
        try:
            output = await self._client.generate(name, prompt_ids=prompt, sampling_params=dict(params))
        except Exception as error:  # noqa: BLE001 - the boundary to Ray and the engines: the model server decides what next
            return Reply(500, {"detail": f"verl's engine failed: {type(error).__name__}: {error}"})
        self._continued.remember(prompt, output.token_ids, name)
        return Reply(200, reply_body(output, prompt, params))


def sampling_params(given: JsonObject) -> dict[str, Any]:
    """What vLLM is told by way of verl, which takes `logprobs` as yes or no."""
    return {name: value for name, value in given.items() if value is not None} | {"logprobs": True}


def reply_body(output: Any, prompt: Sequence[int], params: dict[str, Any]) -> JsonObject:
    """The reply of /inference/v1/generate to what verl's client returned."""
    ids = list(output.token_ids)
    logprobs = output.log_probs if output.log_probs is not None else []
    pairs = zip(ids, logprobs, strict=True) if len(logprobs) == len(ids) else ()
    content = [{"token_id": token, "logprob": _sayable(value)} for token, value in pairs]
    choice: JsonObject = {
        "index": 0,
        "token_ids": ids,
        "logprobs": {"content": content},
        "finish_reason": finish_of(output, ids, params),
    }
    version = _version(output.extra_fields)
    if version is not None and ids:
        choice["weight_versions"] = [{"version": version, "start": 0, "end": len(ids)}]
    usage: JsonObject = {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}
    cached = output.extra_fields.get("num_cached_tokens")
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return {"choices": [choice], "usage": usage}


def finish_of(output: Any, ids: Sequence[int], params: dict[str, Any]) -> str:
    """How a generation ended. verl says `completed` both of one that stopped and of one that was cut off."""
    if output.stop_reason in {"aborted", "abort"}:
        return "abort"
    if ids and ids[-1] in params.get("stop_token_ids", ()):
        return "stop"
    cut = output.stop_reason == "length" or len(ids) >= params["max_tokens"]
    return "length" if cut else "stop"


def _sayable(logprob: float | None) -> float:
    """JSON has no NaN; vLLM's own stand-in for it tells the model server that the call is to be made again."""
    return logprob if logprob is not None and math.isfinite(logprob) else _NOT_A_LOGPROB


def _version(told: dict[str, Any]) -> str | None:
    """The weights, which verl counts in steps. Over an update it tells the first and the last, not where they met."""
    first, last = told.get("min_global_steps"), told.get("max_global_steps")
    if first is None or last is None:
        return None
    return str(last) if first == last else f"{first}-{last}"
