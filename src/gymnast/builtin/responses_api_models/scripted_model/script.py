"""Scripts for `scripted_model`: the replies, and how one is chosen for a call. Pure, seeded."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import orjson
import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, TypeAdapter, ValidationError, model_validator

from gymnast.kit import JsonObject, is_model_turn, message_text


class ScriptedToolCall(BaseModel):
    """A tool call of the model. Arguments given as text are sent unchanged, even invalid JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    arguments: JsonObject | str = {}
    call_id: str | None = None

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else orjson.dumps(self.arguments).decode()


class ScriptedReply(BaseModel):
    """A reply: text, reasoning, tool calls or an error. A plain string is a reply with that text."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    text: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ScriptedToolCall, ...] = ()
    finish: Literal["stop", "length", "content_filter"] = "stop"
    usage: dict[str, int] | None = None
    """`input_tokens` and `output_tokens`; by default counted in words."""
    latency_s: NonNegativeFloat | None = None
    hang: bool = False
    """Never reply: the caller's timeout ends the call."""
    status: int | None = Field(default=None, ge=400, le=599)
    """Reply with this error status."""
    body: JsonObject | str | None = None
    """The body of an error."""
    retry_after_s: NonNegativeFloat | None = None
    raw: str | None = None
    """Reply 200 with exactly this text, e.g. something that is not JSON."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value


class Rule(BaseModel):
    """Replies for matching conversations: the n-th model turn gets the n-th reply, and the last one repeats."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    when: str | None = None
    """A regular expression for the last user message. Without it the rule matches everything."""
    replies: tuple[ScriptedReply, ...] = Field(min_length=1)


class Fault(BaseModel):
    """A fault in a share of the calls."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rate: float = Field(ge=0, le=1)
    reply: ScriptedReply


@dataclass(frozen=True)
class ScriptedCall:
    """A model call, as a script function sees it."""

    params: JsonObject
    rollout_id: str | None
    seed: int

    @cached_property
    def items(self) -> list[JsonObject]:
        value = self.params["input"]
        return [{"role": "user", "content": value}] if isinstance(value, str) else list(value)

    @cached_property
    def turn(self) -> int:
        """How many model turns the conversation already has."""
        turns, in_turn = 0, False
        for item in self.items:
            is_model = is_model_turn(item)
            turns += is_model and not in_turn
            in_turn = is_model
        return turns

    @cached_property
    def user_text(self) -> str:
        """The last user message."""
        return next((message_text(item) for item in reversed(self.items) if item.get("role") == "user"), "")

    @cached_property
    def tool_outputs(self) -> list[str]:
        """The tool outputs since the last model turn."""
        outputs: list[str] = []
        for item in reversed(self.items):
            if item.get("type") != "function_call_output":
                break
            outputs.append(str(item["output"]))
        return outputs[::-1]

    @cached_property
    def random(self) -> random.Random:
        """Random numbers that are the same for the same rollout, turn and history."""
        stable_items = [{key: value for key, value in item.items() if key not in _VOLATILE} for item in self.items]
        identity = f"{self.seed}\0{self.rollout_id}\0{self.turn}\0".encode() + orjson.dumps(stable_items)
        return random.Random(hashlib.sha256(identity).digest())  # noqa: S311 - a script, not a secret


_VOLATILE = frozenset({"id", "call_id"})  # new in every run, so they must not influence anything


class Script(Protocol):
    """Chooses the reply to a call."""

    async def reply(self, call: ScriptedCall) -> ScriptedReply: ...


class RuleScript:
    """Replies by turn from the first matching rule."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = [(re.compile(rule.when, re.DOTALL) if rule.when else None, rule) for rule in rules]

    async def reply(self, call: ScriptedCall) -> ScriptedReply:
        for pattern, rule in self._rules:
            if pattern is None or pattern.search(call.user_text):
                return rule.replies[min(call.turn, len(rule.replies) - 1)]
        text = f"no rule of the script matches: {call.user_text[:200]!r}"
        return ScriptedReply(status=400, body={"error": {"message": text, "type": "script_error"}})


class FunctionScript:
    """A Python function, sync or async."""

    def __init__(self, function: Callable[[ScriptedCall], Any]) -> None:
        self._function = function

    async def reply(self, call: ScriptedCall) -> ScriptedReply:
        produced = self._function(call)
        if inspect.isawaitable(produced):
            produced = await produced
        return ScriptedReply.model_validate(produced)


def load_script(source: str, find: Callable[[str], Path | None]) -> Script:
    """Load a script from `module:function`, or from a .jsonl, .json or .yaml file of rules or replies."""
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", source):
        module, _, name = source.partition(":")
        try:
            return FunctionScript(getattr(importlib.import_module(module), name))
        except (ImportError, AttributeError) as error:
            raise ValueError(f"cannot import the script function '{source}': {error}") from error
    path = find(source)
    if path is None:
        raise ValueError(f"script '{source}' is neither an existing file nor module:function")
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        entries = [orjson.loads(line) for line in text.split("\n") if line.strip()]
    else:
        entries = orjson.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    return parse_script(entries, str(path))


def parse_script(entries: Any, where: str) -> Script:
    """Parse a script from data: a list of rules, or a list of replies for every conversation."""
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{where}: a script must be a non-empty list of replies or rules")
    try:
        if all(isinstance(entry, dict) and "replies" in entry for entry in entries):
            return RuleScript(TypeAdapter(tuple[Rule, ...]).validate_python(tuple(entries)))
        replies = TypeAdapter(tuple[ScriptedReply, ...]).validate_python(tuple(entries))
        return RuleScript((Rule(replies=replies),))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{where}: entry {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
