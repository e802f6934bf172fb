"""Answering model calls with prompts of token ids: conversation to ids, ids to an engine, samples to items, all kept.

A generation that an engine aborted (a weight update, say) is continued from where it stopped. One whose logprobs are
unusable is asked for again a bounded number of times, then goes on as text and is masked.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.errors import CallError
from gymnast.kit.ledgers import Ledgers
from gymnast.kit.model import new_id, now
from gymnast.tokens.engine import (
    BadGeneration,
    ContextOverflow,
    Generated,
    Sampling,
    WeightSpan,
    check_generation,
)
from gymnast.tokens.messages import conversation_of, items_of_said, message_of_said
from gymnast.tokens.rendering import NotRenderable
from gymnast.types.failure import FailureDetail, Stage
from gymnast.types.responses import response_object, usage_object
from gymnast.types.tokens import TOKEN_CALL
from gymnast.wire.dialects.chat_request import NotConvertible
from gymnast.wire.server import HttpError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.kit.ledgers import Entry
    from gymnast.kit.model import Model, ModelCall
    from gymnast.tokens.engine import TokenEngine
    from gymnast.tokens.messages import Conversation
    from gymnast.tokens.rendering import Renderer
    from gymnast.tokens.session import Prompt
    from gymnast.types.items import CreateParams, Item, Response, Usage
    from gymnast.types.json import JsonObject

_TRIES: Final = 3
"""How often a generation is asked for while what comes back is no whole bundle."""
_CONTINUATIONS: Final = 64
"""How often an aborted generation is continued."""
_SEED_STEP: Final = 1_000_003
"""A continuation with the same seed would draw the same numbers again."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_SAMPLING: Final = ("top_k", "min_p", "seed")


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """How a model server uses ids."""

    return_ids: bool = False
    """Items carry ids and logprobs, or refer to the ledger that a collector takes."""
    template_args: Mapping[str, Any] = field(default_factory=dict)
    developer_role: str = "system"
    """The role under which templates know developer messages."""
    sampling_overrides: Mapping[str, Any] = field(default_factory=dict)
    """Win over what requests say; named as in create params."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Sampling parameters that create params have no name for, under what requests say."""


class TokenPath:
    """Model calls as token ids."""

    def __init__(self, model: Model, renderer: Renderer, engine: TokenEngine, options: TokenOptions) -> None:
        self._model = model
        self._renderer = renderer
        self._engine = engine
        self._options = options
        self.ledgers = Ledgers(renderer, model.model_name)
        self.ledgers.serve_on(model)

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        """Answer one model call."""
        asked = self._conversation(params)
        self._model.note_ignored(call, asked.lost)
        extra = {**self._options.extra, **asked.extra}
        sampling = sampling_of({**params, **self._options.sampling_overrides}, extra)
        sampling = replace(sampling, stop_token_ids=self._stops(extra))
        entry = self.ledgers.of(call) if self._options.return_ids else self.ledgers.passing()
        try:
            prompt = entry.session.begin(asked.messages, asked.tools, asked.args)
        except NotRenderable as error:
            raise refusal(self._model.name, str(error)) from error
        try:
            generated, masked = await self._generate(prompt, sampling, call)
        except ContextOverflow:
            return self._response(params, _nothing(), _usage(prompt, None), incomplete="max_output_tokens")
        output = self._keep(entry, prompt, sampling, generated, masked, asked.tools)
        incomplete = None if generated.finish == "stop" else "max_output_tokens"
        return self._response(params, output, _usage(prompt, generated), incomplete=incomplete)

    def _conversation(self, params: CreateParams) -> Conversation:
        options = self._options
        try:
            return conversation_of(params, options.template_args, developer=options.developer_role)
        except NotConvertible as error:
            raise refusal(self._model.name, str(error)) from error

    def _stops(self, extra: JsonObject) -> tuple[int, ...]:
        return (*self._renderer.stop_token_ids, *(extra.get("stop_token_ids") or ()))

    def _keep(
        self,
        entry: Entry,
        prompt: Prompt,
        sampling: Sampling,
        generated: Generated,
        masked: str | None,
        tools: list[JsonObject],
    ) -> list[Item]:
        said = self._renderer.parse(generated.token_ids, prompt.ids, tools)
        message = message_of_said(said, [said_call.id or new_id("call_") for said_call in said.tool_calls])
        number = entry.session.finish(prompt, sampling, generated, message, masked=masked)
        output = items_of_said(said, message, new_id)
        if self._options.return_ids and (entry.watched or not masked):
            put_tokens(output, number if entry.watched else None, prompt.ids, generated)
        return output

    async def _generate(self, prompt: Prompt, sampling: Sampling, call: ModelCall) -> tuple[Generated, str | None]:
        """What was sampled, whole; and why it must be masked, if it must."""
        for left in reversed(range(_TRIES)):
            try:
                return await self._whole(prompt.ids, sampling, call), None
            except BadGeneration as error:
                self._model.log.warning("rollout %s: %s", call.rollout_id, error)
                if left:
                    continue
                if error.generated is not None and error.generated.token_ids:
                    return error.generated, "bad_logprobs"
                text = f"{self._model.name}: {error}"
                raise CallError(
                    FailureDetail("model_bad_reply", Stage.MODEL, text, instance=self._model.name)
                ) from error
        raise AssertionError("unreachable")

    async def _whole(self, ids: list[int], sampling: Sampling, call: ModelCall) -> Generated:
        """A generation to its end, over as many requests as aborts make of it."""
        parts: list[Generated] = []
        pause_s = _FIRST_PAUSE_S
        for _ in range(_CONTINUATIONS):
            made = [token for part in parts for token in part.token_ids]
            left = sampling.max_tokens - len(made) if sampling.max_tokens is not None else None
            if parts and left is not None and left < 1:
                return joined(parts, "length")
            seed = sampling.seed + len(parts) * _SEED_STEP if sampling.seed is not None else None
            asked = replace(sampling, max_tokens=left, seed=seed)
            part = check_generation(await self._engine.generate(ids + made, asked, call))
            parts.append(part)
            if part.finish != "abort":
                return joined(parts, part.finish)
            await asyncio.sleep(pause_s)
            pause_s = _FIRST_PAUSE_S if part.token_ids else min(2 * pause_s, _LONGEST_PAUSE_S)
        text = f"{self._model.name}: the engine aborted a generation {_CONTINUATIONS} times"
        raise CallError(FailureDetail("model_error", Stage.MODEL, text, instance=self._model.name))

    def _response(self, params: CreateParams, output: list[Item], usage: Usage, *, incomplete: str | None) -> Response:
        return response_object(
            params,
            output,
            response_id=new_id("resp_"),
            created_at=now(),
            model=self._model.model_name,
            usage=usage,
            incomplete={"reason": incomplete} if incomplete else None,
        )


def put_tokens(output: list[Item], number: int | None, prompt_ids: Sequence[int], generated: Generated) -> None:
    """Let the last item of a call refer to its ledger entry, or carry its ids where nobody will take the ledger."""
    last: Any = output[-1]
    if number is not None:
        last[TOKEN_CALL] = number
        return
    last |= {
        "prompt_token_ids": list(prompt_ids),
        "generation_token_ids": list(generated.token_ids),
        "generation_log_probs": list(generated.logprobs),
    }


def sampling_of(params: Mapping[str, Any], extra: JsonObject) -> Sampling:
    """How a request wants to be sampled; what create params have no name for comes from its extra body."""
    named = {name: params.get(name, extra.get(name)) for name in _SAMPLING}
    temperature, top_p = params.get("temperature"), params.get("top_p")
    rest = {key: value for key, value in extra.items() if key not in {*_SAMPLING, "stop_token_ids"}}
    return Sampling(
        max_tokens=params.get("max_output_tokens"),
        temperature=1.0 if temperature is None else float(temperature),
        top_p=1.0 if top_p is None else float(top_p),
        top_k=named["top_k"],
        min_p=named["min_p"],
        seed=named["seed"],
        extra=rest,
    )


def joined(parts: Sequence[Generated], finish: Any) -> Generated:
    """Generations that continue each other as one."""
    if len(parts) == 1:
        return parts[0]
    spans: list[WeightSpan] = []
    start = 0
    for part in parts:
        for span in part.weight_versions:
            begin, end = start + span.start, start + span.end
            if spans and spans[-1].version == span.version and spans[-1].end == begin:
                spans[-1] = replace(spans[-1], end=end)
            elif end > begin:
                spans.append(WeightSpan(span.version, begin, end))
        start += len(part.token_ids)
    return Generated(
        [token for part in parts for token in part.token_ids],
        [value for part in parts for value in part.logprobs],
        finish,
        parts[0].logprob_mode,
        tuple(spans),
        parts[0].cached_tokens,
    )


def refusal(instance: str, said: str) -> HttpError:
    """The request asks for what a prompt of ids cannot say; leaving that out would change its meaning."""
    detail = FailureDetail("model_rejected", Stage.MODEL, f"{instance}: {said}", instance=instance, body=said)
    return HttpError(422, said, failure=detail)


def _nothing() -> list[Item]:
    part: JsonObject = {"annotations": [], "text": "", "type": "output_text", "logprobs": None}
    item: Any = {"id": new_id("msg_"), "content": [part], "role": "assistant", "status": "incomplete"}
    return [{**item, "type": "message"}]


def _usage(prompt: Prompt, generated: Generated | None) -> Usage:
    if generated is None:
        return usage_object(len(prompt.ids), 0)
    return usage_object(len(prompt.ids), len(generated.token_ids), cached=generated.cached_tokens)
