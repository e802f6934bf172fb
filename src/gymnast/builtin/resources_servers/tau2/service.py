"""What the service domains share: a database per rollout, its scoring, and a few tools.

A rollout succeeds if the database ends in the state in which the reference actions leave it, and the policy told the
user what it had to. Tool errors of reference actions are ignored, as in τ²-bench.
"""

from __future__ import annotations

import ast
import asyncio
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

from gymnast.kit import (
    Attempt,
    Environment,
    EnvironmentSettings,
    InvalidBody,
    JsonObject,
    ServerContext,
    Task,
    ToolCall,
    ToolError,
    Verdict,
    message_text,
    tool,
)

Database = dict[str, Any]
_OPERATORS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_MAX_EXPRESSION: Final = 500
_MAX_POWER: Final = 64
_MAX_BASE: Final = 1_000_000
ValueT = TypeVar("ValueT")


class Action(BaseModel):
    """A call of a tool that solves a part of the task."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    name: str
    arguments: dict[str, Any] = {}


class Criteria(BaseModel):
    """What makes a rollout right."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    actions: list[Action] = []
    communicate_info: list[str] = []
    """Texts that the policy's messages must contain, without case and commas."""
    reward_basis: list[str] = Field(default=["DB", "COMMUNICATE"])
    """Of DB, COMMUNICATE and NL_ASSERTION. The last needs a judge and is not scored: `communicate_info` is instead."""


class ServiceTask(Task):
    evaluation_criteria: Criteria
    database: str | None = None
    """The path of the database; by default the environment's."""


class ServiceVerdict(Verdict):
    database_match: bool
    missing_info: list[str]
    """Of `communicate_info`, what the policy did not tell."""
    truncated_conversation: bool


class ServiceSettings(EnvironmentSettings):
    database: str | None = None
    """The path of a database for all rows, instead of the one that they name."""


class Service(Environment[ServiceTask, Database]):
    """A service desk with a database. Subclasses add the tools."""

    settings: ServiceSettings
    example_database: ClassVar[Path]
    scores_without_session: ClassVar[bool] = True

    def __init__(self, name: str, settings: ServiceSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self._databases: dict[Path, bytes] = {}

    async def open(self, task: ServiceTask) -> Database:
        return _parse(await self._initial(task))

    async def verify(self, attempt: Attempt[ServiceTask, Database]) -> ServiceVerdict:
        criteria = attempt.task.evaluation_criteria
        initial = await self._initial(attempt.task)
        expected = await self._replay(initial, [ToolCall(step.name, step.arguments, "") for step in criteria.actions])
        actual = await self._replay(initial, attempt.tool_calls)
        messages = [_plain(message_text(item)) for item in attempt.output if item.get("role") == "assistant"]
        missing = [info for info in criteria.communicate_info if not any(info.lower() in text for text in messages)]
        is_match = await asyncio.to_thread(operator.eq, expected, actual)
        is_cut = bool(attempt.response.get("incomplete_details"))
        tells = not missing or not {"COMMUNICATE", "NL_ASSERTION"} & set(criteria.reward_basis)
        is_right = (is_match or "DB" not in criteria.reward_basis) and tells and not is_cut
        return ServiceVerdict(
            reward=float(is_right), database_match=is_match, missing_info=missing, truncated_conversation=is_cut
        )

    async def _replay(self, initial: bytes, calls: list[ToolCall]) -> Database:
        """The database after the calls. Those of unknown tools, or with arguments that do not fit, change nothing."""
        database = _parse(initial)
        for call in calls:
            known = self.tools.get(call.name)
            if known is None or call.arguments is None:
                continue
            try:
                arguments = known.parse(call.arguments)
                await known.function(**({"session": database} if known.takes_session else {}), **arguments)
            except (ToolError, InvalidBody):
                continue
        return database

    async def _initial(self, task: ServiceTask) -> bytes:
        """The database as JSON: parsing it takes a fifth of the time of a deep copy."""
        path = Path(self.settings.database or task.database or self.example_database)
        if path not in self._databases:
            self._databases[path] = await asyncio.to_thread(_load, path)
        return self._databases[path]

    @tool
    async def calculate(self, expression: str) -> str:
        """Compute an arithmetic expression.

        Args:
            expression: Numbers with + - * / and parentheses, such as '2 * (3 + 4)'.
        """
        return str(round(float(compute(expression)), 2))

    @tool
    async def transfer_to_human_agents(self, summary: str) -> str:
        """Hand the user over to a human agent: if the user asks for one, or the request cannot be handled here.

        Args:
            summary: What the user wants, in short.
        """
        del summary
        return "Transfer successful"


def _load(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        _parse(content)
    except (OSError, orjson.JSONDecodeError) as error:
        raise InvalidBody.of_field(f"cannot read the database {path}: {error}", "database") from error
    return content


def _parse(content: bytes) -> Database:
    database: Database = orjson.loads(content)
    return database


def _plain(text: str) -> str:
    return text.lower().replace(",", "")


def find(table: Mapping[str, ValueT], key: str, what: str) -> ValueT:
    """An entry by its ID. Raises ToolError that the model reads."""
    if key not in table:
        raise ToolError(f"{what} not found")
    return table[key]


def compute(expression: str) -> float:
    """The value of an arithmetic expression. Nothing else is evaluated."""
    if len(expression) > _MAX_EXPRESSION or not set(expression) <= set("0123456789+-*/(). "):
        raise ToolError("Invalid characters in expression")
    try:
        value: float = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ToolError(f"cannot compute {expression}: {error}") from error
    return value


def _value(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            return -_value(operand) if isinstance(sign, ast.USub) else _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _OPERATORS:
            return _OPERATORS[type(kind)](_value(left), _value(right))
    raise ValueError("only numbers, + - * / and parentheses")


def _power(base: float, power: float) -> Any:
    if abs(power) > _MAX_POWER or abs(base) > _MAX_BASE:
        raise ValueError("the power is too large")
    return base**power


def as_json(value: Any) -> JsonObject | list[Any]:
    """A copy of an entry for the model, without fields that are not set."""
    if isinstance(value, dict):
        return {key: as_json(part) if isinstance(part, (dict, list)) else part for key, part in value.items()}
    return [as_json(part) if isinstance(part, (dict, list)) else part for part in value]
