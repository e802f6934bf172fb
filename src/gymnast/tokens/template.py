"""A renderer made of a tokenizer, a chat template and a family."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from gymnast.tokens.bridge import Bridges
from gymnast.tokens.chat_template import ChatTemplate
from gymnast.tokens.drawing import Artist
from gymnast.tokens.families.family import Context, Reader, declared_texts
from gymnast.tokens.families.thoughts import CLOSE, OPEN
from gymnast.tokens.splitting import Splitter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from gymnast.tokens.families.family import Family, Parsed
    from gymnast.tokens.rendering import Extension, Refusal, Rendered, Said
    from gymnast.tokens.tokenizer import Tokenizer
    from gymnast.types.json import JsonObject

_PROMPT_END = 16


class TemplateRenderer:
    """Renders and bridges with any chat template; parses as the family writes."""

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
        """`variables`: bos_token and the like. `stop_tokens`: further ones than the family's, as texts or ids."""
        self._tokenizer = tokenizer
        self.family = family
        controls = tokenizer.control_tokens
        template = ChatTemplate(chat_template, variables, clock=clock)
        self._thinks = family.thinks and CLOSE in chat_template
        tags = [tag for tag in family.tags if self._thinks or tag not in {OPEN, CLOSE}]
        self._reader = Reader(tokenizer, tags)
        named = [stop if isinstance(stop, int) else controls.get(stop) for stop in (*stop_tokens, *family.stops)]
        self.stop_token_ids = tuple(dict.fromkeys(stop for stop in named if stop is not None))
        closes = {controls[close] for close in family.closes if close in controls}
        self._stops = frozenset(self.stop_token_ids)
        splitter = Splitter(tokenizer)
        self._artist, self._splitter = Artist(template, family, tokenizer), splitter
        self._bridges = Bridges(self._artist, splitter, self._stops, self._stops | closes, thinks=self._thinks)
        told = "\0".join([tokenizer.digest, chat_template, family.name, repr(sorted(template.variables.items()))])
        self.digest = hashlib.sha256(told.encode()).hexdigest()[:16]

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def prompt(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], args: Mapping[str, object]
    ) -> Rendered:
        drawn = self._artist.draw(messages, tools, args, to_generate=True)
        return self._splitter.tokenise(drawn.text, drawn.marks)

    def bridge(
        self,
        history: Sequence[JsonObject],
        generated: Sequence[int],
        new: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        args: Mapping[str, object],
    ) -> Extension | Refusal:
        script = self._reader.script(self._without_stop(generated))

        def read(*, in_thought: bool) -> Parsed:
            return self.family.parse(script, Context(in_thought=in_thought and self._thinks))

        return self._bridges.derive(history, generated, new, tools, args, read)

    def parse(self, generated: Sequence[int], prompt_ids: Sequence[int] = (), tools: Sequence[JsonObject] = ()) -> Said:
        end = self._tokenizer.decode(prompt_ids[-_PROMPT_END:]) if self._thinks and prompt_ids else ""
        context = Context(end.rstrip().endswith(OPEN), declared_texts(tools))
        return self.family.parse(self._reader.script(self._without_stop(generated)), context).said

    def _without_stop(self, generated: Sequence[int]) -> Sequence[int]:
        return generated[:-1] if generated and generated[-1] in self._stops else generated
