"""What every application of the surface has around its routes. Plain ASGI: each layer costs microseconds."""

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

from gymnast.wire.failure_header import HEADER, encode_failure

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from gymnast.types.failure import FailureDetail
    from gymnast.wire.asgi import AsgiApp, AsgiScope, Receive, Send

    Explain = Callable[[str, Exception], tuple[str, FailureDetail]]

SESSION_ID: Final = "session_id"
_TWO_WEEKS_S: Final = 14 * 24 * 3600
CURRENT_SESSION: Final[ContextVar[str | None]] = ContextVar("nemo_gym_session", default=None)
"""The session of the request that is being answered."""


class SessionIds:
    """Gives every request a session id. Writing it anew each time makes every reply carry the cookie."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        session = scope["session"]
        session[SESSION_ID] = found = session.get(SESSION_ID) or str(uuid.uuid4())
        token = CURRENT_SESSION.set(found)
        try:
            await self._app(scope, receive, send)
        finally:
            CURRENT_SESSION.reset(token)


class Catcher:
    """Answers for a handler that raised."""

    def __init__(self, app: AsgiApp, explain: Explain) -> None:
        self._app = app
        self._explain = explain

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = False

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if begun:
                raise  # half an answer is out: only the connection can still say that something went wrong
            text, detail = self._explain(scope["path"], error)
            answer = JSONResponse(text, status_code=500, headers={HEADER: encode_failure(detail)})
            await answer(scope, receive, send)


class SessionCookies:
    """Session cookies in Starlette's form, so that a session begun in memory goes on over a port."""

    def __init__(self, key: str) -> None:
        self.name = key
        self._signer = itsdangerous.TimestampSigner(key)
        self._read = lru_cache(maxsize=4096)(self._unsigned)

    def load(self, cookie: str | None) -> dict[str, Any]:
        """The session that a cookie names, or a new one."""
        known = self._read(cookie) if cookie else None
        return dict(known) if known else {SESSION_ID: str(uuid.uuid4())}

    def dump(self, session: dict[str, Any]) -> str:
        """A cookie that names a session."""
        data = base64.b64encode(json.dumps(session).encode())
        return self._signer.sign(data).decode()

    def _unsigned(self, cookie: str) -> dict[str, Any] | None:
        try:
            data = self._signer.unsign(cookie.encode(), max_age=_TWO_WEEKS_S)
            found = json.loads(base64.b64decode(data))
        except (itsdangerous.BadSignature, binascii.Error, ValueError):
            return None
        return found if isinstance(found, dict) and found.get(SESSION_ID) else None
