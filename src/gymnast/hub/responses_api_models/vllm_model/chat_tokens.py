"""Token ids and logprobs in chat completions, wherever an engine put them. Whole bundles or an error, never a part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from gymnast.tokens.engine import Generated, check_generation
from gymnast.wire.dialects.chat_reply import BadCompletion

if TYPE_CHECKING:
    from gymnast.tokens.engine import Finish, LogprobMode
    from gymnast.types.json import JsonObject

ASKING: Final[JsonObject] = {
    "logprobs": True,
    "top_logprobs": 0,
    "return_tokens_as_token_ids": True,
    "return_token_ids": True,
}
"""What a chat request says so that its reply has them."""
TOKENIZED: Final = ("model", "messages", "tools", "chat_template_kwargs", "mm_processor_kwargs")
"""What of a chat request /tokenize needs to render the same prompt."""

_PREFIX: Final = "token_id:"


@dataclass(frozen=True, slots=True)
class ChatTokens:
    """What a completion says of its tokens. `prompt_ids` is None when only the sampled ones are told."""

    prompt_ids: list[int] | None
    generated: Generated


def chat_tokens(completion: JsonObject, mode: LogprobMode) -> ChatTokens:
    """Raises BadCompletion when ids or logprobs are missing or contradict each other, BadGeneration when unusable."""
    choices = completion.get("choices") or []
    if len(choices) != 1:
        raise BadCompletion(f"{len(choices)} choices where token ids need exactly one")
    choice = choices[0]
    prompt, ids, logprobs = _bundle(completion, choice)
    finish = {"length": "length", "abort": "abort"}.get(choice.get("finish_reason") or "", "stop")
    generated = Generated(ids, logprobs, cast("Finish", finish), mode)
    return ChatTokens(prompt, check_generation(generated))


def _bundle(completion: JsonObject, choice: JsonObject) -> tuple[list[int] | None, list[int], list[float]]:
    message = choice.get("message") or {}
    names = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
    given = [message.get(name) for name in names]
    if any(value is not None for value in given):
        if None in given:
            missing = ", ".join(name for name, value in zip(names, given, strict=True) if value is None)
            raise BadCompletion(f"the message carries token ids without {missing}")
        return cast("tuple[list[int], list[int], list[float]]", tuple(given))
    entries = (choice.get("logprobs") or {}).get("content") or []
    named = [_named_id(entry.get("token")) for entry in entries]
    ids = choice.get("token_ids")
    if ids is None:
        if not entries or None in named:
            raise BadCompletion("the engine returned no token ids: neither token_ids nor 'token_id:N' logprobs")
        ids = [token for token in named if token is not None]
    elif None not in named and named != ids and entries:
        raise BadCompletion("token_ids and the tokens of the logprobs differ")
    return _prompt_ids(completion, choice), ids, [entry.get("logprob") for entry in entries]


def _prompt_ids(completion: JsonObject, choice: JsonObject) -> list[int] | None:
    found = completion.get("prompt_token_ids")
    return found if found is not None else choice.get("prompt_token_ids")


def _named_id(token: Any) -> int | None:
    if isinstance(token, str) and token.startswith(_PREFIX) and token[len(_PREFIX) :].isdecimal():
        return int(token[len(_PREFIX) :])
    return None
