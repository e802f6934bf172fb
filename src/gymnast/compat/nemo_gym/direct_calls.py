"""Direct calls to the simple routes of a FastAPI application, without HTTP.

Most routes take a pydantic body, perhaps the request, and return a model. Those are validated, called and dumped here
by FastAPI's rules but without its machinery: about 50 µs where an in-memory request takes 500. Everything else (other
parameters, other middleware, dependencies) goes through the application.
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

from gymnast.compat.nemo_gym.middleware import (
    CURRENT_SESSION,
    SESSION_ID,
    ExceptionMiddleware,
    SessionCookies,
    SessionIdMiddleware,
)
from gymnast.compat.nemo_gym.rollout_correlation import RolloutContextMiddleware
from gymnast.wire.cookies import cookie_header, parse_set_cookies
from gymnast.wire.message import Reply, encode_body
from gymnast.wire.transports import AsgiTransport
from gymnast.wire.validate import error_detail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from gymnast.compat.nemo_gym.middleware import Explain
    from gymnast.wire.message import Request as WireRequest

_KNOWN_MIDDLEWARE: Final = frozenset(
    {SessionMiddleware, SessionIdMiddleware, RolloutContextMiddleware, ExceptionMiddleware}
)
_UNSET: Final = ("response_model_include", "response_model_exclude", "status_code")
_FALSE: Final = ("response_model_exclude_unset", "response_model_exclude_defaults", "response_model_exclude_none")


@dataclass(frozen=True, slots=True)
class DirectRoute:
    """A route that can be called directly."""

    route: APIRoute
    body: tuple[str, Callable[..., Any]] | None
    """The name of the body's parameter and its validator."""
    request: str | None
    response: str | None
    result: tuple[type | None, Callable[..., Any], Callable[..., Any]] | None
    """The class that a result should have, if it is a class, its validator, and its serializer."""


def direct_routes(app: FastAPI) -> dict[tuple[str, str], DirectRoute]:
    """The routes that can be called directly, by method and path."""
    default_handlers = FastAPI().exception_handlers
    if {layer.cls for layer in app.user_middleware} - _KNOWN_MIDDLEWARE or app.exception_handlers != default_handlers:
        return {}
    if getattr(app.router, "dependencies", None) or app.dependency_overrides:
        return {}
    routes: dict[tuple[str, str], DirectRoute] = {}
    for route in app.routes:
        direct = _parse_route(route) if type(route) is APIRoute else None
        for method in getattr(route, "methods", None) or ():
            if direct is not None and (method, direct.route.path) not in routes:
                routes[method, direct.route.path] = direct
    return routes


def _parse_route(route: APIRoute) -> DirectRoute | None:
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
    by_role: dict[str, Any] = {}
    for parameter in parameters:
        role = _role(parameter)
        if role is None or role in by_role:
            return None
        by_role[role] = parameter
    body = by_role.get("body")
    return DirectRoute(
        route,
        (body.name, _validator(body.annotation)) if body is not None else None,
        by_role["request"].name if "request" in by_role else None,
        by_role["response"].name if "response" in by_role else None,
        _dumper(route.response_model),
    )


def _role(parameter: inspect.Parameter) -> str | None:
    kind = parameter.annotation
    if kind is Request:
        return "request"
    if kind is Response:
        return "response"
    required = parameter.default is inspect.Parameter.empty
    is_body = type(parameter.default) is Body and not parameter.default.embed and parameter.default.is_required()
    is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
    return "body" if (required and is_model) or (is_body and (is_model or kind is dict)) else None


def _validator(kind: Any) -> Callable[..., Any]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.__pydantic_validator__.validate_python
    return TypeAdapter(kind).validate_python


def _dumper(model: Any) -> tuple[type | None, Callable[..., Any], Callable[..., Any]] | None:
    if model is None:
        return None
    if isinstance(model, type) and issubclass(model, BaseModel):  # its own: building an adapter takes a millisecond
        return model, model.__pydantic_validator__.validate_python, model.__pydantic_serializer__.to_python
    adapter = TypeAdapter(model)
    return (model if isinstance(model, type) else None), adapter.validate_python, adapter.serializer.to_python


class DirectCalls:
    """Calls the direct routes of one application."""

    def __init__(self, app: FastAPI, cookies: SessionCookies, explain: Explain, state: Mapping[str, Any]) -> None:
        self._app = app
        self._state = state
        self._cookies = cookies
        self._explain = explain
        self._routes = direct_routes(app)

    def find(self, method: str, path: str) -> DirectRoute | None:
        return self._routes.get((method, path))

    async def call(self, route: DirectRoute, request: WireRequest, *, is_prefixed: bool = False) -> Reply:
        """Answer a request as the application would. `is_prefixed`: its path named its rollout."""
        try:
            return await self._answer(route, request, {"rollout_id": request.rollout_id} if is_prefixed else {})
        except RequestValidationError as error:
            return Reply(422, {"detail": jsonable_encoder(error.errors())})
        except HTTPException as error:
            return Reply(error.status_code, {"detail": error.detail}, headers=error.headers or {})
        except Exception as error:  # noqa: BLE001 - the boundary: anything a server raises becomes its 500
            text, detail = self._explain(request.path, error)
            return Reply(500, text, failure=detail)

    async def _answer(self, route: DirectRoute, request: WireRequest, path_params: dict[str, Any]) -> Reply:
        arguments: dict[str, Any] = {}
        if route.body is not None:
            # Through bytes and back, as over a socket: changes that a handler makes to its body stay with it.
            name, validate = route.body
            if request.body is None:
                return Reply(
                    422, {"detail": [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}]}
                )
            try:
                arguments[name] = validate(orjson.loads(encode_body(request.body)), from_attributes=True)
            except ValidationError as error:
                return Reply(422, {"detail": error_detail(error)})
        injected = None
        if route.response is not None:
            injected = arguments[route.response] = Response()
        # /verify ends a rollout, so that its session matters only if the handler looks at it.
        if route.request is None and request.path == "/verify":
            value = await route.route.endpoint(**arguments)
            return (
                await _send_response(value, request) if isinstance(value, Response) else _reply(route, value, injected)
            )
        session = self._cookies.load(request.cookies.get(self._cookies.name))
        before = dict(session) if self._cookies.name in request.cookies else None
        if route.request is not None:
            arguments[route.request] = self._request(request, session, path_params)
        token = CURRENT_SESSION.set(session[SESSION_ID])
        try:
            value = await route.route.endpoint(**arguments)
        finally:
            CURRENT_SESSION.reset(token)
        reply = await _send_response(value, request) if isinstance(value, Response) else _reply(route, value, injected)
        # Set the session cookie on the first reply, as every reply does over a port: callers may keep using that one.
        if session != before:
            reply.cookies = {**reply.cookies, self._cookies.name: self._cookies.dump(session)}
        return reply

    def _request(self, request: WireRequest, session: dict[str, Any], path_params: dict[str, Any]) -> Request:
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
        if request.body is not None:
            headers.append((b"content-type", b"application/json"))
        if request.cookies:
            headers.append((b"cookie", cookie_header(request.cookies).encode("latin-1")))
        scope = {
            "type": "http",
            "app": self._app,
            "method": request.method,
            "path": request.path,
            "raw_path": request.path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 0),
            "server": ("gymnast", 80),
            "path_params": path_params,
            "state": {**self._state, "rollout_id": request.rollout_id},
            "session": session,
        }

        async def receive() -> MutableMapping[str, Any]:
            body = encode_body(request.body) if request.body is not None else b""
            return {"type": "http.request", "body": body, "more_body": False}

        return Request(scope, receive)


def _reply(route: DirectRoute, value: Any, injected: Response | None) -> Reply:
    if injected is None:
        return Reply(200, _dump(route, value))
    return Reply(injected.status_code or 200, _dump(route, value), _cookies_of(injected), _headers_of(injected))


async def _send_response(response: Response, request: WireRequest) -> Reply:
    """Send a response that the handler built itself."""
    if type(response) is JSONResponse and response.background is None:
        raw = bytes(response.body)
        return Reply(
            response.status_code, orjson.loads(raw), _cookies_of(response), headers=_headers_of(response), raw=raw
        )
    return await AsgiTransport(response).send(request)


def _dump(route: DirectRoute, value: Any) -> Any:
    if route.result is None:
        return jsonable_encoder(value)
    kind, validate, dump = route.result
    if kind is None or not isinstance(value, kind):
        value = validate(value, from_attributes=True)
    return dump(value, mode="json", by_alias=True)


def _cookies_of(response: Response) -> dict[str, str]:
    return parse_set_cookies(value.decode("latin-1") for name, value in response.raw_headers if name == b"set-cookie")


def _headers_of(response: Response) -> dict[str, str]:
    excluded = (b"set-cookie", b"content-length")
    return {
        name.decode("latin-1"): value.decode("latin-1") for name, value in response.raw_headers if name not in excluded
    }
