"""Answers model calls with token ids: renders the conversation, samples from a token backend, parses the result to
items.

Every call is recorded in the rollout's token ledger. A generation that the backend aborted (for a weight update, say)
is continued where it stopped. One whose logprobs are unusable is retried a few times, then returned as text and masked.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gymnast.endpoints.ledgers import TokenLedgers
from gymnast.endpoints.model_server import new_id, unix_time
from gymnast.errors import CallError
from gymnast.tokens.backend import (
    BadGeneration,
    ContextOverflow,
    GeneratedTokens,
    Sampling,
    WeightSpan,
    check_generation,
)
from gymnast.tokens.experts import experts_field, join_rows
from gymnast.tokens.messages import make_render_request, turn_to_items, turn_to_message
from gymnast.tokens.rendering import NotRenderable
from gymnast.types.failure import FailureDetail, FailureKind, Stage
from gymnast.types.responses import make_response, make_usage
from gymnast.types.tokens import TOKEN_CALL
from gymnast.wire.dialects.chat_requests import NotConvertible
from gymnast.wire.server import HttpError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.endpoints.ledgers import LedgerEntry
    from gymnast.endpoints.model_server import Model, ModelCall
    from gymnast.tokens.backend import TokenBackend
    from gymnast.tokens.conversation import Prompt
    from gymnast.tokens.messages import RenderRequest
    from gymnast.tokens.rendering import Renderer
    from gymnast.types.items import CreateParams, Item, Response, Usage
    from gymnast.types.json import JsonObject

_MAX_TRIES: Final = 3
"""Of a generation whose tokens and logprobs are incomplete."""
_MAX_CONTINUATIONS: Final = 64
"""Of an aborted generation."""
_SEED_STEP: Final = 1_000_003
"""A continuation with the same seed would draw the same numbers again."""
_FIRST_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 2.0
_SAMPLING: Final = ("top_k", "min_p", "seed")


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """How a model server uses token ids."""

    return_ids: bool = False
    """Items carry ids and logprobs, or refer to the ledger that a collector will take."""
    template_args: Mapping[str, Any] = field(default_factory=dict)
    developer_role: str = "system"
    """The role of developer messages in templates."""
    sampling_overrides: Mapping[str, Any] = field(default_factory=dict)
    """Override the request's parameters; named as in create params."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Defaults for sampling parameters that create params have no name for."""


class TokenPath:
    """Answers the calls of a model server through a token backend."""

    def __init__(self, model: Model, renderer: Renderer, backend: TokenBackend, options: TokenOptions) -> None:
        self._model = model
        self._renderer = renderer
        self._backend = backend
        self._options = options
        self.ledgers = TokenLedgers(renderer, model.model_name)
        self.ledgers.add_routes(model)

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        request = self._render_request(params)
        self._model.note_ignored(call, request.dropped)
        extra = {**self._options.extra, **request.extra}
        stops = self._stop_token_ids(extra)
        sampling = parse_sampling({**params, **self._options.sampling_overrides}, extra, stop_token_ids=stops)
        entry = self.ledgers.entry_for(call) if self._options.return_ids else self.ledgers.new_entry()
        try:
            prompt = entry.conversation.begin(request.messages, request.tools, request.args)
        except NotRenderable as error:
            raise make_rejection(self._model.name, str(error)) from error
        try:
            generated, masked = await self._generate(prompt, sampling, call)
        except ContextOverflow:
            return self._response(params, _empty_output(), _usage(prompt, None), incomplete="max_output_tokens")
        output = self._record(entry, prompt, sampling, generated, masked, request.tools)
        incomplete = None if generated.finish == "stop" else "max_output_tokens"
        return self._response(params, output, _usage(prompt, generated), incomplete=incomplete)

    def _render_request(self, params: CreateParams) -> RenderRequest:
        options = self._options
        try:
            return make_render_request(params, options.template_args, developer=options.developer_role)
        except NotConvertible as error:
            raise make_rejection(self._model.name, str(error)) from error

    def _stop_token_ids(self, extra: JsonObject) -> tuple[int, ...]:
        return (*self._renderer.stop_token_ids, *(extra.get("stop_token_ids") or ()))

    def _record(
        self,
        entry: LedgerEntry,
        prompt: Prompt,
        sampling: Sampling,
        generated: GeneratedTokens,
        masked: str | None,
        tools: list[JsonObject],
    ) -> list[Item]:
        turn = self._renderer.parse(generated.token_ids, prompt.ids, tools)
        message = turn_to_message(turn, [tool_call.id or new_id("call_") for tool_call in turn.tool_calls])
        number = entry.conversation.finish(prompt, sampling, generated, message, masked=masked)
        output = turn_to_items(turn, message, new_id)
        if self._options.return_ids and (entry.is_collected or not masked):
            attach_tokens(output, entry.call_on_item(number), prompt.ids, generated)
        return output

    async def _generate(
        self, prompt: Prompt, sampling: Sampling, call: ModelCall
    ) -> tuple[GeneratedTokens, str | None]:
        """The complete generation, and why it must be masked, if it must."""
        for tries_left in reversed(range(_MAX_TRIES)):
            try:
                return await self._generate_to_end(prompt.ids, sampling, call), None
            except BadGeneration as error:
                self._model.log.warning("rollout %s: %s", call.rollout_id, error)
                if tries_left:
                    continue
                if error.generated is not None and error.generated.token_ids:
                    return error.generated, "bad_logprobs"
                text = f"{self._model.name}: {error}"
                raise CallError(
                    FailureDetail(FailureKind.MODEL_BAD_REPLY, Stage.MODEL, text, instance=self._model.name)
                ) from error
        raise AssertionError("unreachable")

    async def _generate_to_end(self, ids: list[int], sampling: Sampling, call: ModelCall) -> GeneratedTokens:
        """Sample until the generation ends, continuing it after each abort."""
        parts: list[GeneratedTokens] = []
        pause_s = _FIRST_PAUSE_S
        for _ in range(_MAX_CONTINUATIONS):
            sampled = [token for part in parts for token in part.token_ids]
            rest = _continue_sampling(sampling, len(sampled), len(parts)) if parts else sampling
            if parts and rest.max_tokens is not None and rest.max_tokens < 1:
                return join_generations(parts, "length")
            part = check_generation(await self._backend.generate(ids + sampled, rest, call))
            parts.append(part)
            if part.finish != "abort":
                return join_generations(parts, part.finish)
            await asyncio.sleep(pause_s)
            pause_s = _FIRST_PAUSE_S if part.token_ids else min(2 * pause_s, _MAX_PAUSE_S)
        text = f"{self._model.name}: the backend aborted a generation {_MAX_CONTINUATIONS} times"
        raise CallError(FailureDetail(FailureKind.MODEL_ERROR, Stage.MODEL, text, instance=self._model.name))

    def _response(self, params: CreateParams, output: list[Item], usage: Usage, *, incomplete: str | None) -> Response:
        return make_response(
            params,
            output,
            response_id=new_id("resp_"),
            created_at=unix_time(),
            model=self._model.model_name,
            usage=usage,
            incomplete={"reason": incomplete} if incomplete else None,
        )


def attach_tokens(
    output: list[Item], number: int | None, prompt_ids: Sequence[int], generated: GeneratedTokens
) -> None:
    """Make a call's last item refer to its ledger entry, or carry the ids if no collector will take the ledger."""
    last: Any = output[-1]
    if number is not None:
        last[TOKEN_CALL] = number
        return
    last |= {
        "prompt_token_ids": list(prompt_ids),
        "generation_token_ids": list(generated.token_ids),
        "generation_log_probs": list(generated.logprobs),
        **experts_field(generated.experts, len(prompt_ids) + len(generated.token_ids)),
    }


def parse_sampling(params: Mapping[str, Any], extra: JsonObject, *, stop_token_ids: tuple[int, ...] = ()) -> Sampling:
    """The sampling parameters of a request; those that create params have no name for come from its extra body."""
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
        stop_token_ids=stop_token_ids,
        extra=rest,
    )


def _continue_sampling(sampling: Sampling, sampled: int, parts: int) -> Sampling:
    """How to continue a generation of which some tokens in some parts are sampled."""
    left = sampling.max_tokens - sampled if sampling.max_tokens is not None else None
    seed = sampling.seed + parts * _SEED_STEP if sampling.seed is not None else None
    return replace(sampling, max_tokens=left, seed=seed)


def join_generations(parts: Sequence[GeneratedTokens], finish: Any) -> GeneratedTokens:
    """Join generations that continue each other."""
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
    return GeneratedTokens(
        [token for part in parts for token in part.token_ids],
        [value for part in parts for value in part.logprobs],
        finish,
        parts[0].logprob_mode,
        tuple(spans),
        parts[0].cached_tokens,
        join_rows([part.experts for part in parts]),
    )


def make_rejection(instance: str, text: str) -> HttpError:
    """An error for a request that cannot be rendered as token ids without changing its meaning."""
    detail = FailureDetail(FailureKind.MODEL_REJECTED, Stage.MODEL, f"{instance}: {text}", instance=instance, body=text)
    return HttpError(422, text, failure=detail)


def _empty_output() -> list[Item]:
    part: JsonObject = {"annotations": [], "text": "", "type": "output_text", "logprobs": None}
    item: Any = {"id": new_id("msg_"), "content": [part], "role": "assistant", "status": "incomplete"}
    return [{**item, "type": "message"}]


def _usage(prompt: Prompt, generated: GeneratedTokens | None) -> Usage:
    if generated is None:
        return make_usage(len(prompt.ids), 0)
    return make_usage(len(prompt.ids), len(generated.token_ids), cached=generated.cached_tokens)
