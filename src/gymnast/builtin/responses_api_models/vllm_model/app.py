"""The Responses API in front of vLLM, or of any server with vLLM's Chat Completions.

Reasoning is kept as `<think>` blocks inside and as vLLM's reasoning fields outside. A prompt that no longer fits the
context is an outcome of the policy (an incomplete response), not a failure. With a tokenizer, prompts are sent as token
ids; without one, the ids and logprobs that vLLM reports are checked call by call.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from gymnast.kit import (
    TRAINING_FIELDS,
    BadCompletion,
    BadGeneration,
    Caller,
    CallError,
    CreateParams,
    EndpointSettings,
    FailureKind,
    InvalidBody,
    JsonObject,
    LogprobMode,
    Model,
    ModelCall,
    NotConvertible,
    Response,
    ServerContext,
    TokenLedgers,
    TokenOptions,
    TokenPath,
    Upstream,
    UserError,
    add_overflow,
    attach_tokens,
    completion_to_response,
    is_context_overflow,
    load_renderer,
    make_history,
    make_rejection,
    media_of_messages,
    new_id,
    params_to_chat,
    read_metadata_json,
    split_thinking,
    tokens_of_last_turn,
    validate_response,
    wrap_thinking,
)

from .chat_tokens import TOKEN_REQUEST, TOKENIZE_FIELDS, chat_tokens
from .token_backend import VLLMTokenBackend

_CHAT: Final = "/chat/completions"
_AUDIO: Final = ("audio_data", "audio_path", "audio_paths")


class VLLMModelSettings(EndpointSettings):
    base_url: str | list[str] = Field(min_length=1)
    api_key: str
    model: str
    return_token_id_information: bool = False
    """Training mode: every rollout has a token ledger."""
    request_prompt_and_generation_token_ids: bool = True
    """Accepted but not used: ids are always requested if they are returned."""
    forward_token_ids: bool = True
    """Training mode without `tokenizer`: send the tokens of the last assistant message along, for servers that continue
    them (NeMo RL's). Turn it off for a server that rejects unknown fields of messages."""
    tokenizer: str | None = None
    """A folder with tokenizer.json and its config. If set, prompts are rendered here and sent as ids."""
    chat_template: str | None = None
    """A template, or a file with one, instead of the tokenizer's."""
    model_family: str | None = None
    """How to parse generations (qwen, llama3, gpt_oss…). By default detected from the template."""
    logprobs_mode: LogprobMode = "raw"
    """vLLM's `--logprobs-mode`: raw, or processed."""
    use_completions_api: bool = False
    render_chat_template: bool = False
    """With use_completions_api: render prompts with `tokenizer`."""
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
    """Request a stream from vLLM to measure the time to the first token. The reply is the same."""


class VLLMModel(Model):
    """Converts Responses to Chat Completions and back."""

    settings: VLLMModelSettings

    def __init__(self, name: str, settings: VLLMModelSettings, context: ServerContext) -> None:
        super().__init__(name, settings, context)
        self.upstream = Upstream(
            name,
            settings.base_url,
            context,
            settings,
            api_key=settings.api_key,
            headers=settings.default_headers,
        )
        self._tokens = self._token_path()
        self._ledgers = TokenLedgers(None, settings.model)
        if self._tokens is None and settings.return_token_id_information:
            self._ledgers.add_routes(self)

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
            body, lost = params_to_chat(params)
        except NotConvertible as error:
            raise make_rejection(self.name, str(error)) from error
        self.note_ignored(call, lost)
        tokens = self.settings.return_token_id_information
        if tokens:
            body = {**body, "messages": self._with_tokens(body["messages"], params, call), **TOKEN_REQUEST}
        completion = await self._chat(body, call)
        try:
            response = completion_to_response(
                completion,
                params,
                model=self.settings.model,
                new_id=new_id,
                parse_thinking=self.settings.uses_reasoning_parser,
            )
            if tokens and not call.is_free:
                await self._account(response, completion, params, body, call)
            if not call.is_free:
                self.upstream.require_answer(response, _CHAT)
        except (BadCompletion, BadGeneration) as error:
            raise self.upstream.failure(FailureKind.MODEL_BAD_REPLY, _CHAT, str(error)) from error
        return add_overflow(response, call)

    def _with_tokens(self, messages: list[JsonObject], params: CreateParams, call: ModelCall) -> list[JsonObject]:
        """Add the tokens of the last assistant message, with which NeMo RL's servers continue it as it was sampled.

        Other servers ignore them and render its text again; drift is then recorded in the ledger.
        """
        last = max((index for index, message in enumerate(messages) if message["role"] == "assistant"), default=None)
        if last is None or not self.settings.forward_token_ids:
            return messages
        history, tools = make_history(params)
        sent = tokens_of_last_turn(params["input"])
        tokens = self._ledgers.entry_for(call).conversation.tokens_of_last_turn(history, tools, sent)
        if tokens is None:
            return messages
        bundle = dict(zip(TRAINING_FIELDS, (tokens.prompt_ids, tokens.sampled, tokens.logprobs), strict=True))
        return [*messages[:last], {**messages[last], **bundle}, *messages[last + 1 :]]

    async def _account(
        self, response: Response, completion: JsonObject, params: CreateParams, body: JsonObject, call: ModelCall
    ) -> None:
        """Record the tokens that vLLM reports for a chat completion in the ledger."""
        tokens = chat_tokens(completion, self.settings.logprobs_mode)
        messages, tools = make_history(params)
        prompt_ids = tokens.prompt_ids
        if prompt_ids is None:
            prompt_ids = await self._tokenize(body, call)
        entry = self._ledgers.entry_for(call)
        answer = make_history({"input": response["output"]})[0][-1]
        temperature = params.get("temperature")
        number = entry.conversation.observe(
            messages,
            tools,
            prompt_ids,
            1.0 if temperature is None else temperature,
            tokens.generated,
            answer,
            list(media_of_messages(body["messages"])),
        )
        attach_tokens(response["output"], entry.call_on_item(number), prompt_ids, tokens.generated)

    async def _tokenize(self, body: JsonObject, call: ModelCall) -> list[int]:
        """The prompt as vLLM renders it, requested separately: some servers return only the sampled tokens."""
        messages = [self._outbound_message(message, call) for message in body["messages"]]
        request = self._outbound_body({**body, "messages": messages})
        reply = await self.upstream.post(
            "//tokenize", {name: request[name] for name in TOKENIZE_FIELDS if name in request}, call
        )
        tokens = reply.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            raise BadCompletion("the reply of /tokenize has no list of token ids")
        return tokens

    def _token_path(self) -> TokenPath | None:
        """The token path, if a tokenizer is configured and a setting requires it."""
        settings = self.settings
        is_rendered = settings.use_completions_api and settings.render_chat_template
        if settings.use_completions_api and not is_rendered:
            raise UserError(
                f"{self.name}: use_completions_api without render_chat_template is not supported",
                next="set render_chat_template: true and `tokenizer`, whose template renders the prompts",
            )
        if settings.tokenizer is None:
            if is_rendered:
                raise UserError(f"{self.name}: render_chat_template needs `tokenizer`", next="set it to a folder")
            return None
        if not (settings.return_token_id_information or is_rendered):
            return None
        renderer = load_renderer(settings.tokenizer, chat_template=settings.chat_template, family=settings.model_family)
        backend = VLLMTokenBackend(_RootUpstream(self.upstream), settings.model, logprobs_mode=settings.logprobs_mode)
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
        return TokenPath(self, renderer, backend, options)

    async def complete(self, body: JsonObject, call: ModelCall) -> JsonObject:
        if self._tokens is not None or self.settings.return_token_id_information:
            return await super().complete(body, call)  # through `respond`, which records tokens
        return await self._chat(body, call)

    async def _chat(self, body: JsonObject, call: ModelCall) -> JsonObject:
        messages = [self._outbound_message(message, call) for message in body["messages"]]
        if not self.settings.sequential_reasoning_allowed and _ends_with_empty_turn(messages):
            call.is_free = True
            return _empty_completion(self.settings.model, "content_filter")
        request = self._outbound_body({**body, "messages": messages})
        try:
            if self.settings.measure_ttft:
                completion, call.ttft_ms = await self.upstream.post_timed(_CHAT, request, call)
            else:
                completion = await self.upstream.post(_CHAT, request, call)
        except CallError as error:
            if not is_context_overflow(error.detail):
                raise
            self.note_overflow(call, error.detail)
            return _empty_completion(self.settings.model, "length")
        try:
            for choice in completion.get("choices") or ():
                self._fold_reasoning(choice.get("message") or {})
        except (AttributeError, TypeError) as error:
            message = f"the reply is not a chat completion: {error}"
            raise self.upstream.failure(FailureKind.MODEL_BAD_REPLY, _CHAT, message) from error
        return completion

    async def _respond_natively(self, params: CreateParams, call: ModelCall) -> Response:
        request = self._outbound_body(dict(params))
        reply = await self.upstream.post("/responses", request, call)
        try:
            return validate_response(reply, loc=("response",))
        except InvalidBody as error:
            raise self.upstream.failure(
                FailureKind.MODEL_BAD_REPLY, "/responses", f"not a Responses object: {error}"
            ) from error

    def _outbound_body(self, body: JsonObject) -> JsonObject:
        """The request body, over the configured extras and under the sampling overrides."""
        settings = self.settings
        template, extra = settings.chat_template_kwargs or {}, settings.extra_body or {}
        if metadata := body.get("metadata"):
            for name in _AUDIO:
                if name in metadata:
                    raise make_rejection(self.name, f"audio in metadata ('{name}') is not supported")
            try:
                template = {**template, **read_metadata_json(metadata, "chat_template_kwargs")}
                extra = {**extra, **read_metadata_json(metadata, "extra_body")}
            except NotConvertible as error:
                raise make_rejection(self.name, str(error)) from error
        defaults: JsonObject = {"chat_template_kwargs": template, **extra} if template else extra
        return {**defaults, **body, "model": settings.model, **(settings.sampling_overrides or {})}

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
            self.note_ignored(call, ["reasoning after the first of a turn"])  # a message has only one field for it
        return {**message, "content": kept, "reasoning_content": thoughts[0], "reasoning": thoughts[0]}

    def _fold_reasoning(self, message: JsonObject) -> None:
        reasoning = message.pop("reasoning_content", None)
        reasoning = message.pop("reasoning", None) or reasoning
        if not reasoning:
            return
        if not self.settings.uses_reasoning_parser:
            text = "vLLM returned reasoning although uses_reasoning_parser is false"
            raise self.upstream.failure(FailureKind.MODEL_BAD_REPLY, _CHAT, text)
        message["content"] = wrap_thinking(reasoning) + (message.get("content") or "")


class _RootUpstream:
    """The upstream with paths relative to the root of its servers."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def post(self, path: str, body: JsonObject, caller: Caller, /) -> JsonObject:
        return await self._upstream.post(f"/{path}", body, caller)


def _ends_with_empty_turn(messages: list[JsonObject]) -> bool:
    last = messages[-1] if messages else {}
    return last.get("role") == "assistant" and not last.get("content") and not last.get("tool_calls")


def _empty_completion(model: str, finish_reason: str) -> JsonObject:
    message = {"role": "assistant", "content": None}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {"id": "chtcmpl-123", "object": "chat.completion", "created": 0, "model": model, "choices": [choice]}
