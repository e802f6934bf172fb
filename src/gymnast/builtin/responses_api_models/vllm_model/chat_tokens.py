"""Reads token ids and logprobs from chat completions, in any of the known formats. All of them or an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from gymnast.kit import BadCompletion, Finish, GeneratedTokens, JsonObject, LogprobMode, check_generation

from .routed_experts import experts_in

TOKEN_REQUEST: Final[JsonObject] = {
    "logprobs": True,
    "top_logprobs": 0,
    "return_tokens_as_token_ids": True,
    "return_token_ids": True,
}
"""The fields of a chat request that ask for tokens."""
TOKENIZE_FIELDS: Final = ("model", "messages", "tools", "chat_template_kwargs", "mm_processor_kwargs")
"""The fields of a chat request that /tokenize needs to render the same prompt."""

_PREFIX: Final = "token_id:"


@dataclass(frozen=True, slots=True)
class ChatTokens:
    """The tokens of a completion. `prompt_ids` is None if only the sampled ones are reported."""

    prompt_ids: list[int] | None
    generated: GeneratedTokens


def chat_tokens(completion: JsonObject, mode: LogprobMode) -> ChatTokens:
    """Read the tokens of a completion. Raises BadCompletion or BadGeneration if they are incomplete or unusable."""
    choices = completion.get("choices") or []
    if len(choices) != 1:
        raise BadCompletion(f"expected one choice, got {len(choices)}")
    choice = choices[0]
    prompt, ids, logprobs = _read_tokens(completion, choice)
    finish = {"length": "length", "abort": "abort"}.get(choice.get("finish_reason") or "", "stop")
    reported = (choice.get("message") or {}).get("routed_experts", choice.get("routed_experts"))
    generated = GeneratedTokens(ids, logprobs, cast("Finish", finish), mode, experts=experts_in(reported))
    if _is_immediate_end(choice):
        return ChatTokens(prompt, generated)
    return ChatTokens(prompt, check_generation(generated))


def _is_immediate_end(choice: JsonObject) -> bool:
    """True if the policy ended its turn at once, on a server that leaves out end tokens (NeMo RL's for TensorRT-LLM).

    It says so with empty lists on the message. An empty list elsewhere is from a server that keeps end tokens.
    """
    message = choice.get("message") or {}
    return choice.get("finish_reason") == "stop" and message.get("generation_token_ids") == [] == message.get(
        "generation_log_probs"
    )


def _read_tokens(completion: JsonObject, choice: JsonObject) -> tuple[list[int] | None, list[int], list[float]]:
    message = choice.get("message") or {}
    names = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    values = [message.get(name) for name in names]
    if any(value is not None for value in values):
        if None in values:
            missing = ", ".join(name for name, value in zip(names, values, strict=True) if value is None)
            raise BadCompletion(f"the message has token ids but no {missing}")
        return cast("tuple[list[int], list[int], list[float]]", tuple(values))
    entries = (choice.get("logprobs") or {}).get("content") or []
    named = [_named_id(entry.get("token")) for entry in entries]
    ids = choice.get("token_ids")
    if ids is None:
        if not entries or None in named:
            raise BadCompletion("the server returned no token ids: neither token_ids nor 'token_id:N' logprobs")
        ids = [token for token in named if token is not None]
    elif None not in named and named != ids and entries:
        raise BadCompletion("token_ids and the tokens of the logprobs differ")
    return _prompt_ids(completion, choice), ids, [entry.get("logprob") for entry in entries]


def _prompt_ids(completion: JsonObject, choice: JsonObject) -> list[int] | None:
    ids = completion.get("prompt_token_ids")
    return ids if ids is not None else choice.get("prompt_token_ids")


def _named_id(token: Any) -> int | None:
    if isinstance(token, str) and token.startswith(_PREFIX) and token[len(_PREFIX) :].isdecimal():
        return int(token[len(_PREFIX) :])
    return None
