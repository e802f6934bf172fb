"""Rows of each format, assembled from JSON that is copied from the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import orjson

from gymnast.errors import UserError
from gymnast.train.dataset.chat import ChatStyle, NotChatError
from gymnast.train.dataset.records import agent_of, decode_fields, model_of
from gymnast.types.task import AGENT_REF, MASK, PARAMS
from gymnast.types.tokens import LEDGER

if TYPE_CHECKING:
    from gymnast.train.dataset.chat import Chat, Reasoning
    from gymnast.train.dataset.index import Entry, RolloutFacts

Target = Literal["trl", "axolotl", "nemo-rl", "openai"]
TARGETS: Final = ("trl", "axolotl", "nemo-rl", "openai")
_OWN: Final = frozenset({PARAMS, "response", LEDGER, AGENT_REF, "reward", MASK})


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows look: for which reader, and in which container."""

    format: str
    target: Target
    is_typed: bool
    """In typed columns, JSON values are texts."""

    def check(self) -> None:
        """Raise UserError for a combination that the reader does not have."""
        if self.format == "rl" and self.target in {"openai", "axolotl"}:
            raise UserError(f"--for {self.target} does not read tasks", next="use --for trl or nemo-rl")
        if self.format == "kto" and self.target in {"openai", "nemo-rl"}:
            raise UserError(f"--for {self.target} does not train with KTO", next="use --for trl or axolotl")
        if self.is_typed and self.format == "rl":
            raise UserError("tasks have fields of any form: --format rl writes JSONL", next="leave out --files parquet")
        if self.is_typed and self.target in {"openai", "nemo-rl"} and self.format != "sft":
            raise UserError(f"--for {self.target} reads JSONL", next="leave out --files parquet")
        if self.is_typed and self.target == "openai":
            raise UserError("OpenAI's fine-tuning reads JSONL", next="leave out --files parquet")

    def style(self, reasoning: Reasoning | None) -> ChatStyle:
        """How messages are written. `reasoning` overrides the reader's default."""
        is_openai = self.target == "openai"
        return ChatStyle(
            arguments="text" if is_openai or self.target == "axolotl" or self.is_typed else "object",
            reasoning=reasoning or ("drop" if is_openai else "field"),
            tool_names=not is_openai,
            images="transformers" if self.target == "trl" else "chat",
            escaped_tools=self.is_typed,
        )


class _FlatHead(msgspec.Struct, gc=False):
    """The first columns of a row with everything."""

    run: str
    task: int
    rollout: int
    agent: str
    model: str
    reward: float
    truncated: bool
    label: str | None
    note: str | None
    prompt_messages: int


_ENCODE: Final = msgspec.json.Encoder().encode


class RowMaker:
    """Makes rows."""

    def __init__(self, layout: Layout, runs: list[str]) -> None:
        self._layout = layout
        self._run_names = runs
        self._runs = [orjson.dumps(name) for name in runs]
        self._names = [name.decode() for name in self._runs]

    def sft(self, chat: Chat, facts: RolloutFacts) -> bytes:
        """The whole conversation."""
        if self._layout.target != "openai":
            end = self._end(facts)
            return b"".join(
                (b'{"messages":[', chat.prompt, b",", chat.completion, b'],"tools":', chat.tools, end, b"}")
            )
        tools = b"" if chat.tools == b"[]" else b',"tools":' + chat.tools
        return b'{"messages":[%b,%b]%b}' % (chat.prompt, chat.completion, tools)

    def kto(self, chat: Chat, facts: RolloutFacts, *, label: bool) -> bytes:
        """A completion that is desired or not."""
        row = b'{"prompt":[' + chat.prompt + b'],"completion":[' + chat.completion + b'],"label":'
        row += (b"true" if label else b"false") + b',"tools":' + chat.tools
        return row + self._end(facts) + b"}"

    def dpo(self, chosen: Chat, rejected: Chat, better: RolloutFacts, worse: RolloutFacts) -> bytes:
        """A better and a worse completion of one prompt. Raises NotChatError with the reason."""
        if self._layout.target == "openai":
            if chosen.completion_messages > 1 or rejected.completion_messages > 1:
                raise NotChatError("pair_with_several_turns")
            tools = b"" if chosen.tools == b"[]" else b',"tools":' + chosen.tools
            row = b'{"input":{"messages":[' + chosen.prompt + b"]" + tools + b'},"preferred_output":['
            return row + chosen.completion + b'],"non_preferred_output":[' + rejected.completion + b"]}"
        if self._layout.target == "nemo-rl":
            row = b'{"context":[' + chosen.prompt + b'],"completions":[{"rank":0,"completion":[' + chosen.completion
            row += b']},{"rank":1,"completion":[' + rejected.completion + b']}],"tools":' + chosen.tools
        else:
            row = b'{"prompt":[' + chosen.prompt + b'],"chosen":[' + chosen.completion
            row += b'],"rejected":[' + rejected.completion + b'],"tools":' + chosen.tools
        row += b',"chosen_reward":%b,"rejected_reward":%b' % (_number(better.reward), _number(worse.reward))
        row += b',"run":' + self._runs[better.run] + b',"task":%d' % better.task
        return row + b',"chosen_rollout":%d,"rejected_rollout":%d}' % (better.rollout, worse.rollout)

    def flat(self, chat: Chat, entry: Entry, label: str | None, note: str | None, fields: bytes) -> bytes:
        """Everything about a rollout. `fields`: what its author recorded, as a JSON object."""
        if self._layout.is_typed:
            fields = orjson.dumps(fields.decode())
        record = entry.record
        head = _FlatHead(
            self._run_names[entry.run], record.task, record.rollout, agent_of(record), model_of(record),
            float(record.reward), entry.is_truncated, label, note, chat.prompt_messages,
        )  # fmt: skip
        start = _ENCODE(head)[:-1]
        messages = (b',"messages":[', chat.prompt, b",", chat.completion, b'],"tools":', chat.tools)
        return b"".join((start, *messages, b',"fields":', fields, b"}"))

    def _end(self, facts: RolloutFacts) -> bytes:
        reward, run = float(facts.reward), self._names[facts.run]
        return f',"reward":{reward!r},"run":{run},"task":{facts.task},"rollout":{facts.rollout}'.encode()


def task_row(line: bytes, prompt: bytes | None, tools: bytes | None) -> bytes:
    """A materialized input as a task again: without the identity of its rollout."""
    fields = {name: value for name, value in decode_fields(line).items() if not name.startswith("_ng_")}
    if prompt is not None and tools is not None:
        fields = {"prompt": msgspec.Raw(b"[" + prompt + b"]"), "tools": msgspec.Raw(tools), **fields}
    return msgspec.json.encode(fields)


def is_other_field(name: str) -> bool:
    """Whether a field of a record is its author's."""
    return name not in _OWN and not name.startswith("_ng_")


def _number(value: float) -> bytes:
    return orjson.dumps(float(value))
