"""A renderer composed of a tokenizer, a chat template and a model family."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from gymnast.tokens.bridge import Bridges
from gymnast.tokens.chat_template import ChatTemplate
from gymnast.tokens.families.family import ParseContext, TagLexer
from gymnast.tokens.families.thoughts import CLOSE, OPEN
from gymnast.tokens.marked_text import MarkedTextRenderer
from gymnast.tokens.parsed_turns import ParsedTurns
from gymnast.tokens.prompt_cache import PromptCache
from gymnast.tokens.splitting import Splitter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from gymnast.tokens.families.family import Family, ParseResult
    from gymnast.tokens.rendering import Extension, ParsedTurn, Refusal, Rendered
    from gymnast.tokens.tokenizer import Tokenizer
    from gymnast.types.json import JsonObject

_PROMPT_TAIL = 16


class TemplateRenderer:
    """Renders and bridges with any chat template; parses with the family's parser."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        chat_template: str,
        family: Family,
        *,
        variables: Mapping[str, str] | None = None,
        stop_tokens: Sequence[str | int] = (),
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """`variables`: bos_token and the like. `stop_tokens`: texts or ids, in addition to the family's."""
        self._tokenizer = tokenizer
        self.family = family
        controls = tokenizer.control_tokens
        template = ChatTemplate(chat_template, variables, clock=clock)
        self._thinks = family.thinks and CLOSE in chat_template
        tags = [tag for tag in family.tags if self._thinks or tag not in {OPEN, CLOSE}]
        self._lexer = TagLexer(tokenizer, tags)
        stops = [stop if isinstance(stop, int) else controls.get(stop) for stop in (*stop_tokens, *family.stops)]
        self.stop_token_ids = tuple(dict.fromkeys(stop for stop in stops if stop is not None))
        turn_ends = {controls[close] for close in family.turn_ends if close in controls}
        self._stops = frozenset(self.stop_token_ids)
        self._splitter = splitter = Splitter(tokenizer)
        self._renderer = renderer = MarkedTextRenderer(template, family, tokenizer)
        self._bridges = Bridges(renderer, splitter, self._stops, self._stops | turn_ends, thinks=self._thinks)
        self._prompts = PromptCache()
        self._parsed = ParsedTurns()
        self._has_clock = "strftime_now" in chat_template
        identity = "\0".join([tokenizer.digest, chat_template, family.name, repr(sorted(template.variables.items()))])
        self.digest = hashlib.sha256(identity.encode()).hexdigest()[:16]

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def prompt(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], args: Mapping[str, object]
    ) -> Rendered:
        now = self._renderer.now()

        def render() -> Rendered:
            rendered = self._renderer.render(messages, tools, args, add_generation_prompt=True, now=now)
            return self._splitter.tokenise(rendered.text, rendered.marks)

        return self._prompts.get([messages, tools, args, str(now) if self._has_clock else ""], render)

    def bridge(
        self,
        history: Sequence[JsonObject],
        generated: Sequence[int],
        new: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
    ) -> Extension | Refusal:
        def parse(*, in_thought: bool) -> ParseResult:
            in_thought = in_thought and self._thinks
            known = self._parsed.get(generated, in_thought=in_thought)
            return known or self._parse(generated, ParseContext(in_thought=in_thought))

        return self._bridges.derive(history, generated, new, tools, args, parse)

    def parse(
        self, generated: Sequence[int], prompt_ids: Sequence[int] = (), tools: Sequence[JsonObject] = ()
    ) -> ParsedTurn:
        tail = self._tokenizer.decode(prompt_ids[-_PROMPT_TAIL:]) if self._thinks and prompt_ids else ""
        context = ParseContext(tail.rstrip().endswith(OPEN), tools)
        result = self._parse(generated, context)
        self._parsed.add(generated, result, in_thought=context.in_thought)
        return result.turn

    def _parse(self, generated: Sequence[int], context: ParseContext) -> ParseResult:
        return self.family.parse(self._lexer.split(self._without_stop(generated)), context)

    def _without_stop(self, generated: Sequence[int]) -> Sequence[int]:
        return generated[:-1] if generated and generated[-1] in self._stops else generated
