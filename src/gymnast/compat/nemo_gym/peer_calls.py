"""Calls of a hosted server to its peers: aiohttp request options, carried by the cell's calls.

Only JSON bodies work this way. Forms, files and streams go through the peer's port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import ClientTimeout
from pydantic import BaseModel
from yarl import URL

from gymnast.compat.nemo_gym.client_response import HostedResponse, plain_cookies, to_aiohttp_error
from gymnast.compat.nemo_gym.context import CURRENT_REQUEST
from gymnast.compat.nemo_gym.stages import stage_of
from gymnast.errors import CallError
from gymnast.types.failure import Stage
from gymnast.types.task import FAILURE_CLASS, JUDGE_ERROR
from gymnast.wire.calls import Calls, Scope
from gymnast.wire.cookies import parse_cookie_header

if TYPE_CHECKING:
    from aiohttp.client import _RequestOptions

CALL_TIMEOUT_S: Final = 3600.0
_NO_VERDICT: Final = (FAILURE_CLASS, JUDGE_ERROR)
_TRANSPORT_HEADERS: Final = frozenset({"content-type", "content-length", "host", "cookie"})


def is_json(options: _RequestOptions) -> bool:
    """Whether a request has a JSON body, so that it can be sent without a socket."""
    data = options.get("data")
    if data is None:
        return True
    if not isinstance(data, (str, bytes)):
        return False
    try:
        orjson.loads(data)
    except ValueError:
        return False
    return True


async def call_peer(calls: Calls, name: str, path: str, method: str, options: _RequestOptions) -> HostedResponse:
    """Call a peer through the cell, on behalf of the caller's attempt."""
    context = CURRENT_REQUEST.get()
    raw_headers: Any = options.get("headers") or {}
    headers = {str(key).lower(): str(value) for key, value in dict(raw_headers).items()}
    cookies = {**parse_cookie_header(headers.get("cookie", "")), **plain_cookies(options.get("cookies"))}
    forwarded = {key: value for key, value in headers.items() if key not in _TRANSPORT_HEADERS}
    scope = Scope(context.rollout_id, context.progress, cookies, headers=forwarded)
    timeout = options.get("timeout")
    seconds = timeout.total if isinstance(timeout, ClientTimeout) else None
    target, stage = _with_query(path, options.get("params")), stage_of(path)
    try:
        reply = await calls.call(
            name, target, _body(options), scope, method=method, stage=stage, timeout_s=seconds or CALL_TIMEOUT_S
        )
    except CallError as error:
        raise to_aiohttp_error(error) from error
    if reply.ok and stage is Stage.VERIFY and isinstance(reply.body, dict):
        context.judge_failure = {key: reply.body[key] for key in _NO_VERDICT if key in reply.body}
    # Over a port every reply sets the session cookie again, and agents keep the cookies of the latest reply only.
    same_session = {key: value for key, value in cookies.items() if key.endswith(f"___{name}")}
    return HostedResponse(reply, method, f"http://{name}{target}", {**same_session, **reply.cookies})


def _body(options: _RequestOptions) -> Any:
    """The body through bytes and back, as over a socket: neither side sees later changes by the other."""
    data, body = options.get("data"), options.get("json")
    if body is not None:
        return orjson.loads(orjson.dumps(body, default=jsonable))
    return orjson.loads(data) if data is not None else None


def _with_query(path: str, params: Any) -> str:
    query = URL().extend_query(params).raw_query_string if params else ""
    return f"{path}{'&' if '?' in path else '?'}{query}" if query else path


def jsonable(value: Any) -> Any:
    """Dump a model inside a body, without unset fields."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    raise TypeError(f"{type(value).__name__} is not JSON")
