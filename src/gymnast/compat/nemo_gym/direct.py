"""Plain routes of a FastAPI application, called without HTTP.

Most routes take a pydantic body, perhaps the request, and return a model. Those are validated, called and dumped here,
with FastAPI's rules and without its machinery: some 50 µs where an in-memory request takes 500. Everything else (other
parameters, other middleware, routes of dependencies) is not `plain` and goes through the application.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.params import Body
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.sessions import SessionMiddleware

from gymnast.compat.nemo_gym.middleware import CURRENT_SESSION, SESSION_ID, Catcher, SessionCookies, SessionIds
from gymnast.compat.nemo_gym.rollout_correlation import RolloutContextMiddleware
from gymnast.wire.cookies import cookie_header, parse_set_cookies
from gymnast.wire.message import Reply, encode
from gymnast.wire.transports import InMemoryAsgi
from gymnast.wire.validate import detail_of

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from gymnast.compat.nemo_gym.middleware import Explain
    from gymnast.wire.message import Request as WireRequest

_OURS: Final = frozenset({SessionMiddleware, SessionIds, RolloutContextMiddleware, Catcher})
_UNSET: Final = ("response_model_include", "response_model_exclude", "status_code")
_FALSE: Final = ("response_model_exclude_unset", "response_model_exclude_defaults", "response_model_exclude_none")


@dataclass(frozen=True, slots=True)
class Plain:
    """A route that can be called directly."""

    route: APIRoute
    body: tuple[str, Callable[..., Any]] | None
    """The name of the body's parameter and what validates it."""
    request: str | None
    response: str | None
    result: tuple[type | None, TypeAdapter[Any]] | None
    """The class that a result should be of, if it is one, and how it is dumped."""


def plain_routes(app: FastAPI) -> dict[tuple[str, str], Plain]:
    """By method and path, the routes that can be called directly."""
    usual = FastAPI().exception_handlers
    if {layer.cls for layer in app.user_middleware} - _OURS or app.exception_handlers != usual:
        return {}
    if getattr(app.router, "dependencies", None) or app.dependency_overrides:
        return {}
    found: dict[tuple[str, str], Plain] = {}
    for route in app.routes:
        plain = _plain(route) if type(route) is APIRoute else None
        for method in getattr(route, "methods", None) or ():
            if plain is not None and (method, plain.route.path) not in found:
                found[method, plain.route.path] = plain
    return found


def _plain(route: APIRoute) -> Plain | None:
    if "{" in route.path or route.dependencies or not inspect.iscoroutinefunction(inspect.unwrap(route.endpoint)):
        return None
    if any(getattr(route, name, None) is not None for name in _UNSET) or any(getattr(route, name) for name in _FALSE):
        return None
    if getattr(route.response_class, "value", route.response_class) is not JSONResponse:
        return None
    try:
        parameters = inspect.signature(route.endpoint, eval_str=True).parameters.values()
    except (NameError, TypeError, ValueError):
        return None
    named: dict[str, Any] = {}
    for parameter in parameters:
        role = _role(parameter)
        if role is None or role in named:
            return None
        named[role] = parameter
    body = named.get("body")
    return Plain(
        route,
        (body.name, _validator(body.annotation)) if body is not None else None,
        named["request"].name if "request" in named else None,
        named["response"].name if "response" in named else None,
        _dumper(route.response_model),
    )


def _role(parameter: inspect.Parameter) -> str | None:
    kind = parameter.annotation
    if kind is Request:
        return "request"
    if kind is Response:
        return "response"
    required = parameter.default is inspect.Parameter.empty
    told = type(parameter.default) is Body and not parameter.default.embed and parameter.default.is_required()
    is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
    return "body" if (required and is_model) or (told and (is_model or kind is dict)) else None


def _validator(kind: Any) -> Callable[..., Any]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.__pydantic_validator__.validate_python
    return TypeAdapter(kind).validate_python


def _dumper(model: Any) -> tuple[type | None, TypeAdapter[Any]] | None:
    if model is None:
        return None
    return (model if isinstance(model, type) else None), TypeAdapter(model)


class DirectCalls:
    """Calls the plain routes of one application."""

    def __init__(self, app: FastAPI, cookies: SessionCookies, explain: Explain) -> None:
        self._app = app
        self._cookies = cookies
        self._explain = explain
        self._routes = plain_routes(app)

    def find(self, method: str, path: str) -> Plain | None:
        return self._routes.get((method, path))

    async def call(self, plain: Plain, asked: WireRequest) -> Reply:
        """Answer a request as the application would."""
        try:
            return await self._answer(plain, asked)
        except RequestValidationError as error:
            return Reply(422, {"detail": jsonable_encoder(error.errors())})
        except HTTPException as error:
            return Reply(error.status_code, {"detail": error.detail}, headers=error.headers or {})
        except Exception as error:  # noqa: BLE001 - the boundary: whatever a server raises becomes its 500
            text, detail = self._explain(asked.path, error)
            return Reply(500, text, failure=detail)

    async def _answer(self, plain: Plain, asked: WireRequest) -> Reply:
        given: dict[str, Any] = {}
        if plain.body is not None:
            # Through bytes and back, as over a socket: what a handler does to its body reaches nobody else.
            name, validate = plain.body
            if asked.body is None:
                return Reply(
                    422, {"detail": [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}]}
                )
            try:
                given[name] = validate(orjson.loads(encode(asked.body)), from_attributes=True)
            except ValidationError as error:
                return Reply(422, {"detail": detail_of(error)})
        side = None
        if plain.response is not None:
            side = given[plain.response] = Response()
        session = self._cookies.load(asked.cookies.get(self._cookies.name))
        before = dict(session) if self._cookies.name in asked.cookies else None
        if plain.request is not None:
            given[plain.request] = self._request(asked, session)
        token = CURRENT_SESSION.set(session[SESSION_ID])
        try:
            value = await plain.route.endpoint(**given)
        finally:
            CURRENT_SESSION.reset(token)
        reply = _reply(plain, value, side) if not isinstance(value, Response) else await _sent(value, asked)
        # The first reply names the session, as every one does over a port: a caller may use that cookie throughout.
        # /verify ends a rollout: unless its handler looks at the session, nobody needs one.
        if session != before and (plain.request is not None or asked.path != "/verify"):
            reply.cookies = {**reply.cookies, self._cookies.name: self._cookies.dump(session)}
        return reply

    def _request(self, asked: WireRequest, session: dict[str, Any]) -> Request:
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in asked.headers.items()]
        if asked.body is not None:
            headers.append((b"content-type", b"application/json"))
        if asked.cookies:
            headers.append((b"cookie", cookie_header(asked.cookies).encode("latin-1")))
        scope = {
            "type": "http",
            "app": self._app,
            "method": asked.method,
            "path": asked.path,
            "raw_path": asked.path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 0),
            "server": ("gymnast", 80),
            "path_params": {},
            "state": {"rollout_id": asked.rollout_id},
            "session": session,
        }

        async def receive() -> MutableMapping[str, Any]:
            body = encode(asked.body) if asked.body is not None else b""
            return {"type": "http.request", "body": body, "more_body": False}

        return Request(scope, receive)


def _reply(plain: Plain, value: Any, side: Response | None) -> Reply:
    if side is None:
        return Reply(200, _dumped(plain, value))
    return Reply(side.status_code or 200, _dumped(plain, value), _cookies_of(side), _headers_of(side))


async def _sent(response: Response, asked: WireRequest) -> Reply:
    """A response that the handler made itself."""
    if type(response) is JSONResponse and response.background is None:
        raw = bytes(response.body)
        return Reply(
            response.status_code, orjson.loads(raw), _cookies_of(response), headers=_headers_of(response), raw=raw
        )
    return await InMemoryAsgi(response).send(asked)


def _dumped(plain: Plain, value: Any) -> Any:
    if plain.result is None:
        return jsonable_encoder(value)
    kind, adapter = plain.result
    if kind is None or not isinstance(value, kind):
        value = adapter.validate_python(value, from_attributes=True)
    return adapter.dump_python(value, mode="json", by_alias=True)


def _cookies_of(response: Response) -> dict[str, str]:
    return parse_set_cookies(value.decode("latin-1") for name, value in response.raw_headers if name == b"set-cookie")


def _headers_of(response: Response) -> dict[str, str]:
    left_out = (b"set-cookie", b"content-length")
    return {
        name.decode("latin-1"): value.decode("latin-1") for name, value in response.raw_headers if name not in left_out
    }
