"""A renderer and an engine for tests of the token path: tokens are characters, answers come from a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnast.kit import Model, ModelCall, Settings
from gymnast.kit.token_path import TokenOptions, TokenPath
from gymnast.tokens.engine import Asker, Generated, Sampling
from gymnast.tokens.rendering import Extension, ForkReason, NotRenderable, Refusal, Rendered, Said, SaidCall, Source
from gymnast.types.items import CreateParams, Response
from gymnast.types.json import JsonObject
from gymnast.wire.server import Surroundings

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

    def parse(self, generated: Sequence[int], prompt_ids: Sequence[int] = (), tools: Sequence[JsonObject] = ()) -> Said:
        """`!name` is a call of that tool."""
        text = "".join(chr(token) for token in generated if token < OPEN)
        if text.startswith("!"):
            return Said("", tool_calls=(SaidCall(text[1:], "{}"),))
        return Said(text)


def sampled(text: str, end: int | None = CLOSE) -> Generated:
    ids = [ord(letter) for letter in text] + ([end] if end is not None else [])
    return Generated(ids, [-0.5] * len(ids), "length" if end is None else "stop")


def text_of(ids: Sequence[int]) -> str:
    return "".join({OPEN: "<", CLOSE: ">", OTHER_STOP: "!"}.get(token) or chr(token) for token in ids)


Answer = Generated | Exception | Callable[[Sequence[int]], Generated]


class ListedEngine:
    """Gives the listed answers, one after the other."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Sampling]] = []

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, who: Asker) -> Generated:
        self.asked.append((text_of(prompt_ids), sampling))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Generated) else answer(prompt_ids)


class LetterModel(Model):
    """A model server over letters."""

    def __init__(
        self,
        surroundings: Surroundings,
        engine: ListedEngine,
        options: TokenOptions | None = None,
        renderer: Letters | None = None,
    ) -> None:
        super().__init__("policy", Settings(), surroundings)
        self.path = TokenPath(self, renderer or Letters(), engine, options or TokenOptions(return_ids=True))

    @property
    def model_name(self) -> str:
        return "letters"

    async def respond(self, params: CreateParams, call: ModelCall) -> Response:
        return await self.path.respond(params, call)
