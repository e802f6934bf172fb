"""Serves verl's inference servers as an endpoint for Gymnast's model server: ids in, ids and logprobs out.

Listens for `/inference/v1/generate` on a loopback port that the kernel chooses, and passes each call to verl's public
`LLMServerClient.generate`, which balances load and handles sleeping servers and weight updates.
"""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import numpy as np
import orjson

from gymnast.runtime.listener import Listener
from gymnast.runtime.listening_ports import reserve_port
from gymnast.tokens.expert_arrays import dump_array
from gymnast.train.conversation_index import ConversationIndex
from gymnast.train.error_causes import describe_error
from gymnast.wire.asgi import AccessGuard, ClientDisconnected, read_body, send_reply
from gymnast.wire.message import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from gymnast.types.json import JsonObject
    from gymnast.wire.asgi import AsgiScope, Receive, Send

GENERATE: Final = "/inference/v1/generate"
_NOT_A_LOGPROB: Final = -9999.0


class LlmClient(Protocol):
    """The part of verl's LLMServerClient that is used here."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any: ...


class VerlEndpoint:
    """Use as `async with VerlEndpoint(llm_client, window=…) as endpoint`; its address is `endpoint.url`."""

    def __init__(self, client: LlmClient, *, window: int, host: str = "127.0.0.1") -> None:
        self.token = secrets.token_hex(16)
        """Required from clients: every user of the machine can connect to the port."""
        self._client = client
        self._window = window
        self._conversations = ConversationIndex()
        self._listener = Listener(AccessGuard(self._serve, self.token), reserve_port(host))

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

    async def _serve(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            raw = await read_body(receive)
        except ClientDisconnected:
            return
        await send_reply(send, await self._reply(scope["method"], scope["path"], raw))

    async def _reply(self, method: str, path: str, raw: bytes) -> Reply:
        if (method, path) == ("GET", "/health"):
            return Reply(200, {})
        if (method, path) != ("POST", GENERATE):
            return Reply(404, {"detail": "Not Found"})
        try:
            request = orjson.loads(raw)
            prompt, params = request["token_ids"], sampling_params(request["sampling_params"])
        except (KeyError, TypeError, ValueError) as error:
            return Reply(400, {"detail": f"not a generate request: {error!r}"})
        room = self._window - len(prompt)
        if room < 1:
            # In words of vLLM that the model server knows: a prompt that does not fit is an outcome of the policy.
            detail = f"The prompt (length {len(prompt)}) is longer than the maximum model length of {self._window}."
            return Reply(400, {"detail": detail})
        params["max_tokens"] = min(params.get("max_tokens") or room, room)
        name = self._conversations.name_of(prompt) or secrets.token_hex(16)
        try:
            output = await self._client.generate(name, prompt_ids=prompt, sampling_params=dict(params))
        except Exception as error:  # noqa: BLE001 - boundary to Ray and verl: the model server decides
            return Reply(500, {"detail": f"verl's inference server failed: {describe_error(error)}"})
        self._conversations.remember(prompt, output.token_ids, name)
        return Reply(200, reply_body(output, prompt, params))


def sampling_params(params: JsonObject) -> dict[str, Any]:
    """The sampling parameters for verl, where `logprobs` is a boolean."""
    return {name: value for name, value in params.items() if value is not None} | {"logprobs": True}


def reply_body(output: Any, prompt: Sequence[int], params: dict[str, Any]) -> JsonObject:
    """The reply of /inference/v1/generate for the output of verl's client."""
    ids = list(output.token_ids)
    logprobs = output.log_probs if output.log_probs is not None else []
    pairs = zip(ids, logprobs, strict=True) if len(logprobs) == len(ids) else ()
    content = [{"token_id": token, "logprob": _finite(value)} for token, value in pairs]
    choice: JsonObject = {
        "index": 0,
        "token_ids": ids,
        "logprobs": {"content": content},
        "finish_reason": finish_of(output, ids, params),
    }
    experts = getattr(output, "routed_experts", None)
    if experts is not None:
        choice["routed_experts"] = dump_array(np.asarray(experts))
    version = _version(output.extra_fields)
    if version is not None and ids:
        choice["weight_versions"] = [{"version": version, "start": 0, "end": len(ids)}]
    usage: JsonObject = {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}
    cached = output.extra_fields.get("num_cached_tokens")
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return {"choices": [choice], "usage": usage}


def finish_of(output: Any, ids: Sequence[int], params: dict[str, Any]) -> str:
    """How a generation ended. verl reports `completed` both for stopped and for truncated ones."""
    if output.stop_reason in {"aborted", "abort"}:
        return "abort"
    if ids and ids[-1] in params.get("stop_token_ids", ()):
        return "stop"
    is_truncated = output.stop_reason == "length" or len(ids) >= params["max_tokens"]
    return "length" if is_truncated else "stop"


def _finite(logprob: float | None) -> float:
    """JSON has no NaN; vLLM's placeholder for it makes the model server retry the call."""
    return logprob if logprob is not None and math.isfinite(logprob) else _NOT_A_LOGPROB


def _version(fields: dict[str, Any]) -> str | None:
    """The weights, which verl counts in steps. Across an update it reports first and last, not the boundary."""
    first, last = fields.get("min_global_steps"), fields.get("max_global_steps")
    if first is None or last is None:
        return None
    return str(last) if first == last else f"{first}-{last}"
