"""vLLM as a token backend: ids in, sampled ids with their logprobs out, nothing rendered in between.

Uses `/inference/v1/generate` if the server offers it (`--enable-scale-out`; only this one reports the weights of each
token), else `/v1/completions` with a prompt of ids. Every sampling parameter is sent explicitly, because vLLM takes
missing ones from the model's generation_config.json; parameters that vLLM would ignore are rejected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from gymnast.kit import (
    BadGeneration,
    Caller,
    CallError,
    ContextOverflow,
    FailureDetail,
    FailureKind,
    Finish,
    GeneratedTokens,
    JsonObject,
    LogprobMode,
    Sampling,
    Stage,
    WeightSpan,
    bounded,
    cause_of,
    check_generation,
    is_context_overflow,
)

from .routed_experts import experts_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


GENERATE: Final = "/inference/v1/generate"
COMPLETIONS: Final = "/v1/completions"

_NOT_OFFERED: Final = frozenset({403, 404, 405, 501})
_UNLIMITED: Final = 2**31 - 1
_STAND_IN: Final = -9999.0
"""vLLM's placeholder for a logprob that is NaN or minus infinity."""
_FINISH: Final[Mapping[str, Finish]] = {"stop": "stop", "length": "length", "abort": "abort"}
_OF_SAMPLING: Final = frozenset({
    "allowed_token_ids", "bad_words", "frequency_penalty", "ignore_eos", "logit_bias", "min_tokens",
    "presence_penalty", "repetition_penalty", "stop", "structured_outputs",
})  # fmt: skip
_OF_REQUEST: Final = frozenset({"cache_salt", "priority"})
KNOWN_EXTRA: Final = _OF_SAMPLING | _OF_REQUEST
"""Parameters that `Sampling.extra` may hold; both endpoints support them."""


class Poster(Protocol):
    """Sends a JSON body to a path below the server's root; `kit.upstream.Upstream` is one. Raises CallError."""

    async def post(self, path: str, body: JsonObject, caller: Caller, /) -> JsonObject: ...


class VLLMTokenBackend:
    """One vLLM server, or several identical ones. The poster's paths start at the servers' roots."""

    def __init__(
        self, server: Poster, model: str, *, logprobs_mode: LogprobMode = "raw", use_generate: bool | None = None
    ) -> None:
        self._server = server
        self._model = model
        self._logprobs_mode = logprobs_mode
        self._window: int | None = None
        self.use_generate = use_generate
        """Whether the server offers /inference/v1/generate; None until known."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, caller: Caller) -> GeneratedTokens:
        """Sample a continuation. Raises ContextOverflow, BadGeneration or CallError."""
        _refuse_unknown(sampling.extra)
        prompt = list(prompt_ids)
        try:
            kind, reply = await self._ask(prompt, sampling, caller)
        except CallError as error:
            if is_context_overflow(error.detail):
                raise ContextOverflow(error.detail.body or error.detail.message) from error
            raise
        try:
            _check_prompt(reply, prompt)
            return self._read(reply, kind)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise BadGeneration(f"{kind} sent a reply in an unknown format: {error!r}") from error

    async def _ask(self, prompt: list[int], sampling: Sampling, caller: Caller) -> tuple[str, JsonObject]:
        if self.use_generate is not False:
            try:
                reply = await self._server.post(GENERATE, generate_body(self._model, prompt, sampling), caller)
            except CallError as error:
                if self.use_generate or error.detail.status not in _NOT_OFFERED:
                    raise
            else:
                self.use_generate = True
                return GENERATE, reply
        reply = await self._complete(prompt, sampling, caller)
        if self.use_generate is None:  # another call may have set it meanwhile
            self.use_generate = False
        return COMPLETIONS, reply

    async def _complete(self, prompt: list[int], sampling: Sampling, caller: Caller) -> JsonObject:
        """/v1/completions treats `max_tokens: null` as 16 and rejects more than its window, so we learn the window."""
        try:
            return await self._server.post(COMPLETIONS, self._completions_body(prompt, sampling), caller)
        except CallError as error:
            window = window_of(error.detail)
            if window is None or window == self._window:
                raise
            self._window = window
        return await self._server.post(COMPLETIONS, self._completions_body(prompt, sampling), caller)

    def _completions_body(self, prompt: list[int], sampling: Sampling) -> JsonObject:
        limit = _UNLIMITED if sampling.max_tokens is None else sampling.max_tokens
        if self._window is not None:
            room = self._window - len(prompt)
            if room < 1:
                raise ContextOverflow(f"{len(prompt)} prompt tokens, but the context holds {self._window}")
            limit = min(limit, room)
        return completions_body(self._model, prompt, replace(sampling, max_tokens=limit))

    def _read(self, reply: JsonObject, kind: str) -> GeneratedTokens:
        (choice,) = _choices(reply)
        ids, logprobs = _from_generate(choice) if kind == GENERATE else _from_completion(choice)
        finish = _FINISH.get(choice["finish_reason"])
        if finish is None:
            raise BadGeneration(f"finish_reason is {choice['finish_reason']!r}")
        generated = GeneratedTokens(
            ids,
            logprobs,
            finish,
            self._logprobs_mode,
            _spans(choice.get("weight_versions"), len(ids)),
            _cached_tokens(reply.get("usage")),
            experts_in(choice.get("routed_experts")),
        )
        if any(value is not None and value <= _STAND_IN for value in logprobs):
            raise BadGeneration("a logprob is the stand-in for NaN or minus infinity", generated)
        return check_generation(generated)


def generate_body(model: str, prompt: list[int], sampling: Sampling) -> JsonObject:
    """The request of /inference/v1/generate. Without `max_tokens` the server uses the rest of the context."""
    params = _params(sampling) | _select(sampling.extra, _OF_SAMPLING)
    if sampling.max_tokens is not None:
        params["max_tokens"] = sampling.max_tokens
    body = {"model": model, "token_ids": prompt, "sampling_params": params}
    return body | _select(sampling.extra, _OF_REQUEST)


def completions_body(model: str, prompt: list[int], sampling: Sampling) -> JsonObject:
    """The request of /v1/completions."""
    body = {"model": model, "prompt": prompt, "max_tokens": sampling.max_tokens, **_params(sampling)}
    return body | {"return_token_ids": True, "return_tokens_as_token_ids": True} | dict(sampling.extra)


def window_of(detail: FailureDetail) -> int | None:
    """The size of the context in tokens, if a rejection reports it."""
    return cause_of(detail).max_tokens if detail.status is not None else None


def _params(sampling: Sampling) -> JsonObject:
    params: JsonObject = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": -1 if sampling.top_k is None else sampling.top_k,
        "min_p": 0.0 if sampling.min_p is None else sampling.min_p,
        "repetition_penalty": 1.0,
        "logprobs": 0,
    }
    if sampling.seed is not None:
        params["seed"] = sampling.seed
    if sampling.stop_token_ids:
        params["stop_token_ids"] = list(sampling.stop_token_ids)
    return params


def _select(extra: Mapping[str, object], names: frozenset[str]) -> JsonObject:
    return {name: value for name, value in extra.items() if name in names}


def _refuse_unknown(extra: Mapping[str, object]) -> None:
    unknown = sorted(set(extra) - KNOWN_EXTRA)
    if unknown:
        text = f"unsupported sampling parameters: {', '.join(unknown)}; supported are {', '.join(sorted(KNOWN_EXTRA))}"
        raise CallError(
            FailureDetail(FailureKind.MODEL_REJECTED, Stage.MODEL, bounded(text, 500), status=422, body=text)
        )


def _choices(reply: JsonObject) -> list[Any]:
    choices = reply.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise BadGeneration("the reply does not have one choice")
    return choices


def _check_prompt(reply: JsonObject, prompt: list[int]) -> None:
    """Raise if the server truncated, padded or retokenised the prompt."""
    usage = reply.get("usage") or {}
    counted = usage.get("prompt_tokens", len(prompt))
    if counted != len(prompt):
        raise BadGeneration(f"the server counted {counted} prompt tokens, but {len(prompt)} were sent")
    for choice in _choices(reply):
        seen = choice.get("prompt_token_ids")
        if seen is not None and seen != prompt:
            raise BadGeneration("the server's prompt differs from the one that was sent")


def _from_generate(choice: JsonObject) -> tuple[list[int], list[Any]]:
    ids = choice["token_ids"] or []
    content = (choice["logprobs"] or {}).get("content") or []
    if [entry["token_id"] for entry in content] not in (ids, []):
        raise BadGeneration("the logprobs are for other tokens than the sampled ones")
    return ids, [entry["logprob"] for entry in content]


def _from_completion(choice: JsonObject) -> tuple[list[int], list[Any]]:
    logprobs = choice["logprobs"] or {}
    named: list[Any] = [_named_id(token) for token in logprobs.get("tokens") or ()]
    ids: list[int] | None = choice.get("token_ids")
    if ids is None:
        if None in named:
            raise BadGeneration("the endpoint returns no token ids (neither token_ids nor 'token_id:N')")
        ids = named
    if None not in named and named not in (ids, []):
        raise BadGeneration("the logprobs are for other tokens than the sampled ones")
    return ids, list(logprobs.get("token_logprobs") or ())


def _named_id(token: str) -> int | None:
    prefix, _, number = token.partition(":")
    return int(number) if prefix == "token_id" and number.isdecimal() else None


def _spans(reported: list[JsonObject] | None, length: int) -> tuple[WeightSpan, ...]:
    spans = tuple(WeightSpan(str(span["version"]), span["start"], span["end"]) for span in reported or ())
    edges = [0, *(span.end for span in spans)]
    if spans and ([span.start for span in spans] != edges[:-1] or edges[-1] != length):
        raise BadGeneration(f"weight versions do not cover the {length} tokens: {reported}")
    return spans


def _cached_tokens(usage: JsonObject | None) -> int | None:
    return ((usage or {}).get("prompt_tokens_details") or {}).get("cached_tokens")
