"""A vLLM server (or anything that speaks Chat Completions like it), asked in the Responses form.

Reasoning travels as `<think>` blocks inside and as the engine's reasoning fields outside. A prompt that no longer fits
the context is an outcome of the policy (an incomplete response), not a failure. With a tokenizer, prompts are sent as
token ids; without one, ids and logprobs that the engine reports are checked call by call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field

from gymnast.errors import CallError, UserError
from gymnast.hub.responses_api_models.vllm_model.chat_tokens import ASKING, TOKENIZED, chat_tokens
from gymnast.hub.responses_api_models.vllm_model.token_engine import VLLMTokenEngine
from gymnast.kit import Model, ModelCall
from gymnast.kit.ledgers import Ledgers
from gymnast.kit.model import new_id
from gymnast.kit.token_path import TokenOptions, TokenPath, put_tokens, refusal
from gymnast.kit.upstream import EndpointSettings, Upstream
from gymnast.tokens.engine import BadGeneration, LogprobMode
from gymnast.tokens.load import load_renderer
from gymnast.tokens.messages import conversation_of
from gymnast.types.failure import FailureDetail
from gymnast.types.json import JsonObject
from gymnast.wire.dialects.chat_reply import BadCompletion, response_of_completion, split_thinking
from gymnast.wire.dialects.chat_request import NotConvertible, chat_request, json_in_metadata, think_block
from gymnast.wire.validate import InvalidBody, validate_response

if TYPE_CHECKING:
    from gymnast.tokens.engine import Asker
    from gymnast.types.items import CreateParams, Response
    from gymnast.wire.server import Surroundings

_CHAT: Final = "/chat/completions"
_OVERFLOW: Final = ("context length", "max_tokens")
_AUDIO: Final = ("audio_data", "audio_path", "audio_paths")


class VLLMModelSettings(EndpointSettings):
    base_url: str | list[str] = Field(min_length=1)
    api_key: str
    model: str
    return_token_id_information: bool = False
    """Training mode: every rollout has the ledger of its tokens."""
    request_prompt_and_generation_token_ids: bool = True
    """Accepted; ids are always asked for when they are to be returned."""
    tokenizer: str | None = None
    """A folder with tokenizer.json and its config: prompts are then rendered here and sent as ids."""
    chat_template: str | None = None
    """A template, or a file with one, in place of the tokenizer's own."""
    model_family: str | None = None
    """How generations are parsed (qwen, llama3, gpt_oss…); found out from the template unless given."""
    logprobs_mode: LogprobMode = "raw"
    """What the engine was started with (`--logprobs-mode`): raw unless it says processed."""
    use_completions_api: bool = False
    render_chat_template: bool = False
    """With use_completions_api: prompts are rendered with `tokenizer`."""
    uses_reasoning_parser: bool = True
    uses_interleaved_reasoning: bool = True
    preserve_reasoning_in_assistant_content: bool = False
    replace_developer_role_with_system: bool = False
    sequential_reasoning_allowed: bool = True
    is_responses_native: bool = False
    chat_template_kwargs: JsonObject | None = None
    sampling_overrides: JsonObject | None = None
    extra_body: JsonObject | None = None
    default_headers: dict[str, str] = {}
    measure_ttft: bool = False
    """Ask the engine for a stream, so that the time to the first token is known. The reply is the same."""


class VLLMModel(Model):
    """Converts Responses to Chat Completions and back in front of an engine."""

    settings: VLLMModelSettings

    def __init__(self, name: str, settings: VLLMModelSettings, surroundings: Surroundings) -> None:
        super().__init__(name, settings, surroundings)
        self.upstream = Upstream(
            name,
            settings.base_url,
            surroundings,
            settings,
            api_key=settings.api_key,
            headers=settings.default_headers,
        )
        self._tokens = self._token_path()
        self._ledgers = Ledgers(None, settings.model)
        if self._tokens is None and settings.return_token_id_information:
            self._ledgers.serve_on(self)

    async def stop(self) -> None:
        await self.upstream.stop()

    @property
    def model_name(self) -> str:
        return self.settings.model

    @property
    def takes_hosted_tools(self) -> bool:
        return self.settings.is_responses_native

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        if self._tokens is not None:
            return await self._tokens.respond(params, call)
        if self.settings.is_responses_native:
            return await self._respond_natively(params, call)
        try:
            body, lost = chat_request(params)
        except NotConvertible as error:
            raise refusal(self.name, str(error)) from error
        self.note_ignored(call, lost)
        tokens = self.settings.return_token_id_information
        completion = await self._chat({**body, **ASKING} if tokens else body, call)
        try:
            response = response_of_completion(
                completion,
                params,
                model=self.settings.model,
                new_id=new_id,
                parse_thinking=self.settings.uses_reasoning_parser,
            )
            if tokens and not call.is_free:
                await self._account(response, completion, params, call)
        except (BadCompletion, BadGeneration) as error:
            raise self.upstream.failure("model_bad_reply", _CHAT, str(error)) from error
        return response

    async def _account(self, response: Response, completion: JsonObject, params: CreateParams, call: ModelCall) -> None:
        """Keep what the engine says of the tokens of a chat completion."""
        found = chat_tokens(completion, self.settings.logprobs_mode)
        asked = conversation_of(params, {}, developer="developer")
        prompt_ids = found.prompt_ids
        if prompt_ids is None:
            prompt_ids = await self._tokenized(params, call)
        entry = self._ledgers.of(call)
        answer = conversation_of({"input": response["output"]}, {}, developer="developer").messages[-1]
        temperature = params.get("temperature")
        number = entry.session.observe(
            asked.messages,
            asked.tools,
            prompt_ids,
            1.0 if temperature is None else temperature,
            found.generated,
            answer,
        )
        put_tokens(response["output"], number if entry.watched else None, prompt_ids, found.generated)

    async def _tokenized(self, params: CreateParams, call: ModelCall) -> list[int]:
        """The prompt as the engine renders it, asked for separately: some engines return only what they sampled."""
        body, _ = chat_request(params)
        messages = [self._outbound_message(message, call) for message in body["messages"]]
        asked = self._outbound_body({**body, "messages": messages})
        reply = await self.upstream.post("//tokenize", {name: asked[name] for name in TOKENIZED if name in asked}, call)
        tokens = reply.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            raise BadCompletion("/tokenize answered without a list of token ids")
        return tokens

    def _token_path(self) -> TokenPath | None:
        """Prompts as ids, if a tokenizer is configured and anything asks for it."""
        settings = self.settings
        rendered = settings.use_completions_api and settings.render_chat_template
        if settings.use_completions_api and not rendered:
            raise UserError(
                f"{self.name}: use_completions_api without render_chat_template is not supported",
                next="set render_chat_template: true and `tokenizer`; the model's template decides how prompts look",
            )
        if settings.tokenizer is None:
            if rendered:
                raise UserError(f"{self.name}: render_chat_template needs `tokenizer`", next="name a tokenizer folder")
            return None
        if not (settings.return_token_id_information or rendered):
            return None
        renderer = load_renderer(settings.tokenizer, chat_template=settings.chat_template, family=settings.model_family)
        engine = VLLMTokenEngine(_AtRoot(self.upstream), settings.model, logprobs_mode=settings.logprobs_mode)
        overrides = dict(settings.sampling_overrides or {})
        if "max_tokens" in overrides:
            overrides["max_output_tokens"] = overrides.pop("max_tokens")
        options = TokenOptions(
            return_ids=settings.return_token_id_information,
            template_args=settings.chat_template_kwargs or {},
            developer_role="system" if settings.replace_developer_role_with_system else "developer",
            sampling_overrides=overrides,
            extra=settings.extra_body or {},
        )
        return TokenPath(self, renderer, engine, options)

    async def complete(self, body: JsonObject, call: ModelCall) -> JsonObject:
        if self._tokens is not None or self.settings.return_token_id_information:
            return await super().complete(body, call)  # by way of `respond`, which accounts for tokens
        return await self._chat(body, call)

    async def _chat(self, body: JsonObject, call: ModelCall) -> JsonObject:
        messages = [self._outbound_message(message, call) for message in body["messages"]]
        if not self.settings.sequential_reasoning_allowed and _ends_with_empty_turn(messages):
            call.is_free = True
            return _empty_completion(self.settings.model, "content_filter")
        asked = self._outbound_body({**body, "messages": messages})
        try:
            if self.settings.measure_ttft:
                completion, call.ttft_ms = await self.upstream.post_timed(_CHAT, asked, call)
            else:
                completion = await self.upstream.post(_CHAT, asked, call)
        except CallError as error:
            if _is_overflow(error.detail):
                call.is_free = True
                return _empty_completion(self.settings.model, "length")
            raise
        try:
            for choice in completion.get("choices") or ():
                self._fold_reasoning(choice.get("message") or {})
        except (AttributeError, TypeError) as error:
            said = f"the reply is no chat completion: {error}"
            raise self.upstream.failure("model_bad_reply", _CHAT, said) from error
        return completion

    async def _respond_natively(self, params: CreateParams, call: ModelCall) -> Response:
        asked = self._outbound_body(dict(params))
        reply = await self.upstream.post("/responses", asked, call)
        try:
            return validate_response(reply, loc=("response",))
        except InvalidBody as error:
            raise self.upstream.failure("model_bad_reply", "/responses", f"no Responses object: {error}") from error

    def _outbound_body(self, body: JsonObject) -> JsonObject:
        """Configured extras lie under what the request says; sampling overrides lie on top of it."""
        settings = self.settings
        metadata = body.get("metadata") or {}
        for name in _AUDIO:
            if name in metadata:
                raise refusal(self.name, f"audio in metadata ('{name}') is not supported")
        try:
            template = {**(settings.chat_template_kwargs or {}), **json_in_metadata(metadata, "chat_template_kwargs")}
            extra = {**(settings.extra_body or {}), **json_in_metadata(metadata, "extra_body")}
        except NotConvertible as error:
            raise refusal(self.name, str(error)) from error
        under: JsonObject = {"chat_template_kwargs": template, **extra} if template else extra
        return {**under, **body, "model": settings.model, **(settings.sampling_overrides or {})}

    def _outbound_message(self, message: JsonObject, call: ModelCall) -> JsonObject:
        if message.get("role") == "developer" and self.settings.replace_developer_role_with_system:
            return {**message, "role": "system"}
        content = message.get("content")
        if (
            message.get("role") != "assistant"
            or not isinstance(content, str)
            or not self.settings.uses_reasoning_parser
        ):
            return message
        thoughts, text = split_thinking(content)
        if not thoughts:
            return message
        kept = content if self.settings.preserve_reasoning_in_assistant_content else text or None
        if not self.settings.uses_interleaved_reasoning:
            return {**message, "content": kept}
        if len(thoughts) > 1 and kept is not content:
            self.note_ignored(call, ["reasoning after the first of a turn"])  # a message has one field for it
        return {**message, "content": kept, "reasoning_content": thoughts[0], "reasoning": thoughts[0]}

    def _fold_reasoning(self, message: JsonObject) -> None:
        reasoning = message.pop("reasoning_content", None)
        reasoning = message.pop("reasoning", None) or reasoning
        if not reasoning:
            return
        if not self.settings.uses_reasoning_parser:
            said = "the engine returned reasoning although uses_reasoning_parser is false"
            raise self.upstream.failure("model_bad_reply", _CHAT, said)
        message["content"] = think_block(reasoning) + (message.get("content") or "")


class _AtRoot:
    """The upstream, asked below the root of its servers."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def post(self, path: str, body: JsonObject, who: Asker, /) -> JsonObject:
        return await self._upstream.post(f"/{path}", body, who)


def _is_overflow(detail: FailureDetail) -> bool:
    return detail.status == 400 and any(mark in (detail.body or "") for mark in _OVERFLOW)


def _ends_with_empty_turn(messages: list[JsonObject]) -> bool:
    last = messages[-1] if messages else {}
    return last.get("role") == "assistant" and not last.get("content") and not last.get("tool_calls")


def _empty_completion(model: str, finish_reason: str) -> JsonObject:
    message = {"role": "assistant", "content": None}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"id": "chtcmpl-123", "object": "chat.completion", "created": 0, "model": model, "choices": [choice]}
