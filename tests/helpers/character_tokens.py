"""A renderer and a backend for tests of the token path: tokens are characters, answers come from a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnast.endpoints.token_path import TokenOptions, TokenPath
from gymnast.kit import Model, ModelCall, Settings
from gymnast.tokens.backend import Caller, GeneratedTokens, Sampling
from gymnast.tokens.rendering import (
    Extension,
    ForkReason,
    NotRenderable,
    ParsedCall,
    ParsedTurn,
    Refusal,
    Rendered,
    Source,
)
from gymnast.types.items import CreateParams, Response
from gymnast.types.json import JsonObject
from gymnast.wire.server import ServerContext

OPEN, CLOSE, OTHER_STOP = 1000, 1001, 1002


class Letters:
    """Tokens are characters; turns are OPEN role text CLOSE. `rewrites`: a user message changes the history."""

    digest = "letters"
    stop_token_ids = (CLOSE, OTHER_STOP)

    def __init__(self, *, rewrites: bool = False) -> None:
        self.rewrites = rewrites

    @property
    def tokenizer(self) -> Any:
        raise NotImplementedError

    def prompt(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], args: Mapping[str, object]
    ) -> Rendered:
        ids: list[int] = [ord("t")] * len(tools)
        runs = [(Source.TEMPLATE, len(ids))] if ids else []
        for message in messages:
            if message["role"] == "developer":
                raise NotRenderable("there is no role 'developer'")
            text = [ord(letter) for letter in message["content"] or ""]
            ids += [OPEN, ord(message["role"][0]), *text, CLOSE]
            runs += [(Source.TEMPLATE, 2), (Source(message["role"]), len(text)), (Source.TEMPLATE, 1)]
        return Rendered((*ids, OPEN, ord("a")), (*runs, (Source.TEMPLATE, 2)))

    def bridge(
        self,
        history: Sequence[JsonObject],
        generated: Sequence[int],
        new: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
    ) -> Extension | Refusal:
        assert history[-1]["role"] == "assistant"
        if self.rewrites and any(message["role"] == "user" for message in new):
            return Refusal(ForkReason.TEMPLATE_REWRITES_HISTORY, "thoughts are left out")
        delta = self.prompt(new, [], args)
        if generated and generated[-1] == CLOSE:
            return Extension(delta)
        cut = int(bool(generated) and generated[-1] == OTHER_STOP)
        return Extension(Rendered((CLOSE, *delta.ids), ((Source.TEMPLATE, 1), *delta.sources)), cut)

    def parse(
        self, generated: Sequence[int], prompt_ids: Sequence[int] = (), tools: Sequence[JsonObject] = ()
    ) -> ParsedTurn:
        """`!name` is a call of that tool."""
        text = "".join(chr(token) for token in generated if token < OPEN)
        if text.startswith("!"):
            return ParsedTurn("", tool_calls=(ParsedCall(text[1:], "{}"),))
        return ParsedTurn(text)


def sampled(text: str, end: int | None = CLOSE) -> GeneratedTokens:
    ids = [ord(letter) for letter in text] + ([end] if end is not None else [])
    return GeneratedTokens(ids, [-0.5] * len(ids), "length" if end is None else "stop")


def text_of(ids: Sequence[int]) -> str:
    return "".join({OPEN: "<", CLOSE: ">", OTHER_STOP: "!"}.get(token) or chr(token) for token in ids)


Answer = GeneratedTokens | Exception | Callable[[Sequence[int]], GeneratedTokens]


class ListedBackend:
    """Gives the listed answers, one after the other."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Sampling]] = []

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, caller: Caller) -> GeneratedTokens:
        self.asked.append((text_of(prompt_ids), sampling))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, GeneratedTokens) else answer(prompt_ids)


class LetterModel(Model):
    """A model server over letters."""

    def __init__(
        self,
        context: ServerContext,
        backend: ListedBackend,
        options: TokenOptions | None = None,
        renderer: Letters | None = None,
    ) -> None:
        super().__init__("policy", Settings(), context)
        self.path = TokenPath(self, renderer or Letters(), backend, options or TokenOptions(return_ids=True))

    @property
    def model_name(self) -> str:
        return "letters"

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        return await self.path.respond(params, call)
