"""Checks what enters from outside against the shapes of `types.items`, with pydantic's compiled validators.

Validation drops unknown keys of items and refuses unknown create params, as the contract says. Its errors are the
`detail` list of a 422 body.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter, ValidationError

from gymnast.types.items import CreateParams, Item, Response

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject


class InvalidBody(ValueError):  # noqa: N818 - a refusal, not a crash; becomes status 422
    """A body that does not fit. `detail` is the 422 reply."""

    def __init__(self, detail: list[JsonObject]) -> None:
        first = detail[0]
        where = ".".join(str(step) for step in first["loc"])
        more = f" (and {len(detail) - 1} more)" if len(detail) > 1 else ""
        super().__init__(f"{where}: {first['msg']}{more}")
        self.detail = detail


def validate_params(body: Any, *, loc: tuple[str | int, ...] = ("body",)) -> CreateParams:
    """Responses create params."""
    return cast("CreateParams", _validate(CreateParams, body, loc))


def validate_response(body: Any, *, loc: tuple[str | int, ...] = ("body",)) -> Response:
    """A Responses object; extra keys are kept."""
    return cast("Response", _validate(Response, body, loc))


def validate_items(body: Any, *, loc: tuple[str | int, ...] = ("body",)) -> list[Item]:
    """A list of input or output items."""
    return cast("list[Item]", _validate(list[Item], body, loc))


def require_object(body: Any) -> JsonObject:
    """The body must be a JSON object."""
    if not isinstance(body, dict):
        raise InvalidBody([_detail("model_attributes_type", (), "Input should be a valid dictionary", body)])
    return body


def require_field(body: JsonObject, name: str) -> Any:
    """The body must have that field."""
    if name not in body:
        raise InvalidBody([_detail("missing", (name,), "Field required", body)])
    return body[name]


def detail_of(error: ValidationError, loc: tuple[str | int, ...] = ("body",)) -> list[JsonObject]:
    """A pydantic error as the contract's 422 detail."""
    detail = []
    for found in error.errors(include_url=False):
        entry: JsonObject = {
            "type": found["type"],
            "loc": [*loc, *found["loc"]],
            "msg": found["msg"],
            "input": found.get("input"),
        }
        if "ctx" in found:
            entry["ctx"] = {
                key: str(value) if isinstance(value, Exception) else value for key, value in found["ctx"].items()
            }
        detail.append(entry)
    return detail


def _detail(kind: str, loc: tuple[str | int, ...], message: str, value: Any) -> JsonObject:
    return {"type": kind, "loc": ["body", *loc], "msg": message, "input": value}


def _validate(shape: Any, body: Any, loc: tuple[str | int, ...]) -> Any:
    try:
        return _adapter(shape).validate_python(body)
    except ValidationError as error:
        raise InvalidBody(detail_of(error, loc)) from error


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
