"""Tools as typed async methods: the signature becomes the JSON schema, the docstring the description.

An environment built with the kit lists its tools at `GET /tools`, for agents to offer for rows that name none; any
other one has none to list and is left alone.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from gymnast.errors import CallError
from gymnast.types.encoding import dump_model
from gymnast.types.failure import Stage
from gymnast.wire.classify import kind_of_reply, reply_failure
from gymnast.wire.message import PlainText
from gymnast.wire.validate import InvalidBody, error_detail, require_object

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from gymnast.types.items import FunctionTool
    from gymnast.types.json import JsonObject
    from gymnast.wire.calls import Calls

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

RESERVED_NAMES: Final = frozenset(
    {"verify", "seed_session", "close_session", "aggregate_metrics", "reverify_mode", "mcp"}
)
TOOLS_PATH: Final = "/tools"
"""GET returns the declarations of an environment's tools. Environments not built with the kit do not have it."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MARK: Final = "__gymnast_tool__"


class ToolError(Exception):
    """The tool cannot do what the model asked for. The model gets the message, and the rollout continues."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of an environment."""

    name: str
    description: str
    arguments: type[BaseModel]
    takes_session: bool
    function: Callable[..., Awaitable[Any]]

    def parse(self, body: Any) -> dict[str, Any]:
        """The model's arguments, validated. Raises InvalidBody, which is sent to the model."""
        may_lack = body is None and not any(field.is_required() for field in self.arguments.model_fields.values())
        arguments = {} if may_lack else require_object(body)
        try:
            parsed = self.arguments.model_validate(arguments)
        except ValidationError as error:
            raise InvalidBody(error_detail(error)) from error
        return {name: getattr(parsed, name) for name in self.arguments.model_fields}

    def declaration(self) -> FunctionTool:
        """The tool as an entry of `responses_create_params.tools`."""
        schema = _strip_titles(self.arguments.model_json_schema())
        schema["additionalProperties"] = False
        all_required = set(schema.get("required", ())) == set(schema.get("properties", {}))
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": schema,
            "strict": all_required,
        }


def tool(function: F) -> F:
    """Mark an async method of an environment as a tool that the model may call.

    A parameter named `session` receives the rollout's session; all others are the tool's arguments.
    """
    setattr(function, _MARK, True)
    return function


def collect_tools(owner: object) -> dict[str, Tool]:
    """The tools that an object's class declares, bound to the object."""
    tools: dict[str, Tool] = {}
    for name in dir(type(owner)):
        function = inspect.getattr_static(type(owner), name)
        if getattr(function, _MARK, False):
            tools[name] = _bind(owner, name, function)
    return tools


def tool_names(owner: type) -> list[str]:
    """The names of the tools that a class declares."""
    return [name for name in dir(owner) if getattr(inspect.getattr_static(owner, name), _MARK, False)]


def result_body(result: Any) -> Any:
    """A tool's result as a reply body: text stays text, models become JSON."""
    if isinstance(result, str):
        return PlainText(result)
    if isinstance(result, BaseModel):
        return dump_model(result)
    return result


def _bind(owner: object, name: str, function: Any) -> Tool:
    if name in RESERVED_NAMES or not _NAME.fullmatch(name):
        raise TypeError(f"{type(owner).__name__}.{name} cannot be a tool: the name is reserved or not [A-Za-z0-9_-]")
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"the tool {type(owner).__name__}.{name} must be an async method")
    hints = get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    descriptions = _argument_descriptions(function.__doc__ or "")
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name == "session":
            continue
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[parameter.name] = (hints.get(parameter.name, Any), default)
    arguments: type[BaseModel] = create_model(f"{name}_arguments", __config__=ConfigDict(extra="ignore"), **fields)
    for argument, text in descriptions.items():
        field: FieldInfo | None = arguments.model_fields.get(argument)
        if field is not None and field.description is None:
            field.description = text
    if descriptions:
        arguments.model_rebuild(force=True)
    return Tool(
        name=name,
        description=_summary(function.__doc__ or ""),
        arguments=arguments,
        takes_session=any(parameter.name == "session" for parameter in parameters),
        function=getattr(owner, name),
    )


def _summary(doc: str) -> str:
    text = inspect.cleandoc(doc)
    return re.split(r"\n\s*(?:Args|Arguments|Returns|Raises):", text)[0].strip()


_ARGUMENT = re.compile(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


def _argument_descriptions(doc: str) -> dict[str, str]:
    """The `name: text` lines of an `Args:` section."""
    _, _, section = inspect.cleandoc(doc).partition("\nArgs:")
    section = re.split(r"\n(?:Returns|Raises):", section)[0]
    return {match[1]: match[2].strip() for line in section.splitlines() if (match := _ARGUMENT.match(line))}


def _strip_titles(schema: JsonObject) -> JsonObject:
    """The schema without the titles that pydantic adds: they only cost tokens."""

    def clean(value: Any, *, is_properties: bool = False) -> Any:
        if isinstance(value, dict):
            return {
                key: clean(child, is_properties=key == "properties" and not is_properties)
                for key, child in value.items()
                if is_properties or key != "title"
            }
        return [clean(child) for child in value] if isinstance(value, list) else value

    stripped: JsonObject = clean(schema)
    stripped.setdefault("properties", {})
    return stripped


OfferTools = Literal["auto", "row"]
"""`auto`: the environment's tools if a row has no `tools`; `row`: only what the row declares."""
_NO_SUCH_ROUTE: Final = frozenset({404, 405, 501})


async def list_tools(calls: Calls, environment: str, timeout_s: float) -> list[JsonObject]:
    """The declarations of an environment's tools; empty if it does not list them. Raises CallError."""
    reply = await calls.call(environment, TOOLS_PATH, method="GET", stage=Stage.SEED, timeout_s=timeout_s)
    if reply.status in _NO_SUCH_ROUTE:
        return []
    if not reply.ok:
        kind = kind_of_reply(Stage.SEED, reply.status)
        raise CallError(reply_failure(reply, kind, Stage.SEED, environment, TOOLS_PATH, calls.address(environment)))
    listed: Any = reply.body.get("tools") if isinstance(reply.body, dict) else None
    tools = listed if isinstance(listed, list) else []
    return [tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
