"""Validates outside input against `types.items`, with pydantic's compiled validators.

As the contract requires, unknown keys of items are dropped and unknown create params rejected. Errors are the `detail`
list of a 422 body.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter, ValidationError

from gymnast.types.items import CreateParams, Item, Response, output_part_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnast.types.json import JsonObject


class InvalidBody(ValueError):  # noqa: N818 - a rejection, not a crash; becomes status 422
    """The body is invalid. `detail` is the body of the 422 reply."""

    def __init__(self, detail: list[JsonObject]) -> None:
        first = detail[0]
        where = ".".join(str(step) for step in first["loc"])
        more = f" (and {len(detail) - 1} more)" if len(detail) > 1 else ""
        super().__init__(f"{where}: {first['msg']}{more}")
        self.detail = detail

    @classmethod
    def of_field(cls, message: str, *path: str | int, value: Any = None) -> InvalidBody:
        """One field is invalid: the one at this path in the body."""
        return cls([_detail("value_error", path, message, value)])


def validate_params(body: Any, *, loc: tuple[str | int, ...] = ("body",)) -> CreateParams:
    params: CreateParams = _validate(CreateParams, body, loc)
    return params


def validate_response(body: Any, *, loc: tuple[str | int, ...] = ("body",)) -> Response:
    """Validate a Responses object; extra keys are kept. Messages in it get the role and the status they lack."""
    response = cast("Response", _validate(Response, body, loc))
    _complete_messages(body["output"])
    _complete_messages(cast("list[JsonObject]", response["output"]))
    return response


def validate_items(body: Any, *, loc: tuple[str | int, ...] = ("body",)) -> list[Item]:
    """Validate a list of input or output items."""
    return cast("list[Item]", _validate(list[Item], body, loc))


def require_object(body: Any) -> JsonObject:
    """Return the body if it is a JSON object."""
    if body is None:
        raise InvalidBody([_detail("missing", (), "Field required", body)])
    if not isinstance(body, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise InvalidBody([_detail("model_attributes_type", (), message, body)])
    return body


def require_field(body: JsonObject, name: str) -> Any:
    """Return a required field of the body."""
    if name not in body:
        raise InvalidBody([_detail("missing", (name,), "Field required", body)])
    return body[name]


def error_detail(error: ValidationError, loc: tuple[str | int, ...] = ("body",)) -> list[JsonObject]:
    """A pydantic error as the contract's 422 detail."""
    detail = []
    for problem in error.errors(include_url=False):
        entry: JsonObject = {
            "type": problem["type"],
            "loc": [*loc, *problem["loc"]],
            "msg": problem["msg"],
            "input": problem.get("input"),
        }
        if "ctx" in problem:
            entry["ctx"] = {
                key: str(value) if isinstance(value, Exception) else value for key, value in problem["ctx"].items()
            }
        detail.append(entry)
    return detail


def _complete_messages(items: list[JsonObject]) -> None:
    for item in items:
        if item.get("type") == "message" and item.get("role", "assistant") == "assistant" and "id" in item:
            item.setdefault("role", "assistant")
            item.setdefault("status", "completed")
            for part in item["content"] if isinstance(item["content"], list) else ():
                if "type" not in part:
                    part["type"] = output_part_type(part)


def _detail(kind: str, loc: tuple[str | int, ...], message: str, value: Any) -> JsonObject:
    return {"type": kind, "loc": ["body", *loc], "msg": message, "input": value}


def _validate(model: Any, body: Any, loc: tuple[str | int, ...]) -> Any:
    try:
        return _validator(model)(body)
    except ValidationError as error:
        raise InvalidBody(error_detail(error, loc)) from error


@cache
def _validator(model: Any) -> Callable[[Any], Any]:
    return TypeAdapter(model).validator.validate_python  # without the wrapper, which costs as much as a small body
