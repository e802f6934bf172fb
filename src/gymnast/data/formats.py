"""Rows of other programs as rows of Gymnast: lm-eval's samples, datasets of verifiers, chat datasets of NeMo RL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import UserError, suggest
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from gymnast.types.json import JsonObject

Convert = Callable[["JsonObject"], "JsonObject"]
ANSWER: Final = "expected_answer"


def from_lm_eval(row: JsonObject) -> JsonObject:
    """A line of `samples_TASK_….jsonl`: the prompt that lm-eval sent, its target, and the fields of the document."""
    prompt = _lm_eval_prompt(row.get("arguments"))
    if prompt is None or not isinstance(row.get("doc"), dict):
        raise ValueError("not a sample of lm-eval: it needs `doc` and `arguments` with a prompt")
    return {**row["doc"], PARAMS: {"input": prompt}, ANSWER: _text(row.get("target")), "doc_id": row.get("doc_id")}


def from_verifiers(row: JsonObject) -> JsonObject:
    """A row of a verifiers dataset: `prompt` (messages or text) or `question`, and `answer`."""
    prompt = row.get("prompt", row.get("question"))
    if not isinstance(prompt, (str, list)) or not prompt:
        raise ValueError("not a row of verifiers: it needs `prompt` (or `question`) and `answer`")
    rest = {name: value for name, value in row.items() if name != "prompt"}
    return {**rest, PARAMS: {"input": _messages(prompt)}, **_with_answer(row, "answer")}


def from_nemo_rl(row: JsonObject) -> JsonObject:
    """A row of NeMo RL: one for NeMo Gym as it is, `messages` that end with the answer, or `input` and `output`."""
    if isinstance(row.get(PARAMS), dict):
        return row
    if isinstance(row.get("messages"), list) and row["messages"]:
        return _from_messages(row)
    for question, answer in (("input", "output"), ("problem", ANSWER), ("question", "answer")):
        if isinstance(row.get(question), str):
            rest = {name: value for name, value in row.items() if name != "input"}
            return {**rest, PARAMS: {"input": row[question]}, **_with_answer(row, answer)}
    raise ValueError("not a row of NeMo RL: it needs `messages`, `input` and `output`, or `problem`")


FORMATS: Final[dict[str, Convert]] = {
    "lm-eval": from_lm_eval,
    "verifiers": from_verifiers,
    "nemo-rl": from_nemo_rl,
}


def find_format(name: str) -> Convert:
    """The converter of a format. Raises UserError that lists those there are."""
    if name not in FORMATS:
        raise UserError(f"unknown format '{name}'", next=suggest(name, FORMATS))
    return FORMATS[name]


def detect_format(row: JsonObject) -> str | None:
    """The format that a row is clearly in; None if it is a row of Gymnast, or needs a map."""
    if PARAMS in row:
        return None
    if isinstance(row.get("doc"), dict) and "arguments" in row:
        return "lm-eval"
    if isinstance(row.get("prompt"), list) and all(isinstance(item, dict) for item in row["prompt"]):
        return "verifiers"
    return "nemo-rl" if isinstance(row.get("messages"), list) else None


def _from_messages(row: JsonObject) -> JsonObject:
    messages = _messages(row["messages"])
    rest = {name: value for name, value in row.items() if name != "messages"}
    last = messages[-1]
    if last["role"] != "assistant":
        return {**rest, PARAMS: {"input": messages}}
    if len(messages) == 1:
        raise ValueError("the messages hold an answer, but nothing before it")
    return {**rest, PARAMS: {"input": messages[:-1]}, ANSWER: row.get(ANSWER, last["content"])}


def _messages(prompt: str | list[Any]) -> Any:
    if isinstance(prompt, str):
        return prompt
    if not all(isinstance(item, dict) and isinstance(item.get("role"), str) for item in prompt):
        raise ValueError("a message has no role")
    if any(item.get("content") is None for item in prompt):
        raise ValueError("a message has no content; tool calls in prompts are written as items of the Responses API")
    return [{"role": item["role"], "content": item["content"]} for item in prompt]


def _lm_eval_prompt(arguments: Any) -> str | None:
    """The first prompt, from `{gen_args_0: {arg_0: …}}` or, in older files, `[[prompt, options]]`."""
    if isinstance(arguments, dict):
        first = next(iter(arguments.values()), None)
        arguments = [list(first.values())] if isinstance(first, dict) else None
    if isinstance(arguments, list) and arguments and isinstance(arguments[0], list) and arguments[0]:
        prompt = arguments[0][0]
        return prompt if isinstance(prompt, str) else None
    return None


def _with_answer(row: JsonObject, source: str) -> JsonObject:
    return {ANSWER: _text(row[source])} if source in row and ANSWER not in row else {}


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
