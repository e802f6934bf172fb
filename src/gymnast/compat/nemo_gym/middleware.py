"""The middleware of every `nemo_gym` application. Plain ASGI: each layer costs microseconds."""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import itsdangerous
from starlette.responses import JSONResponse

from gymnast.wire.failure_header import FAILURE_HEADER, encode_failure

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from gymnast.types.failure import FailureDetail
    from gymnast.wire.asgi import AsgiApp, AsgiScope, Receive, Send

    Explain = Callable[[str, Exception], tuple[str, FailureDetail]]

SESSION_ID: Final = "session_id"
_TWO_WEEKS_S: Final = 14 * 24 * 3600
CURRENT_SESSION: Final[ContextVar[str | None]] = ContextVar("nemo_gym_session", default=None)
"""The session of the current request."""


class SessionIdMiddleware:
    """Gives every request a session id. Setting it on each request makes every reply carry the cookie."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        session = scope["session"]
        session[SESSION_ID] = session_id = session.get(SESSION_ID) or str(uuid.uuid4())
        token = CURRENT_SESSION.set(session_id)
        try:
            await self._app(scope, receive, send)
        finally:
            CURRENT_SESSION.reset(token)


class ExceptionMiddleware:
    """Turns an exception of a handler into a 500 reply."""

    def __init__(self, app: AsgiApp, explain: Explain) -> None:
        self._app = app
        self._explain = explain

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = False

        async def track_start(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, track_start)
        except Exception as error:
            if started:
                raise  # part of the reply is sent: only closing the connection can still signal the error
            text, detail = self._explain(scope["path"], error)
            reply = JSONResponse(text, status_code=500, headers={FAILURE_HEADER: encode_failure(detail)})
            await reply(scope, receive, send)


class SessionCookies:
    """Session cookies in Starlette's format, so that a session started in memory can continue over a port."""

    def __init__(self, key: str) -> None:
        self.name = key
        self._signer = itsdangerous.TimestampSigner(key)
        self._read = lru_cache(maxsize=4096)(self._unsign)

    def load(self, cookie: str | None) -> dict[str, Any]:
        known = self._read(cookie) if cookie else None
        return dict(known) if known else {SESSION_ID: str(uuid.uuid4())}

    def dump(self, session: dict[str, Any]) -> str:
        """The cookie of a session."""
        data = base64.b64encode(json.dumps(session).encode())
        return self._signer.sign(data).decode()

    def _unsign(self, cookie: str) -> dict[str, Any] | None:
        try:
            data = self._signer.unsign(cookie.encode(), max_age=_TWO_WEEKS_S)
            session = json.loads(base64.b64decode(data))
        except (itsdangerous.BadSignature, binascii.Error, ValueError):
            return None
        return session if isinstance(session, dict) and session.get(SESSION_ID) else None
