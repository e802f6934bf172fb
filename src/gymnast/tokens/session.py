"""The token ledger of one rollout: the next prompt is what was sampled, plus a bridge; anything else is a new segment.

`begin` says which ids to send, `finish` takes what was sampled. Calls may overlap: nothing changes before `finish`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gymnast.tokens.engine import ContextOverflow
from gymnast.tokens.history import History, Key, context_key, prefix_keys
from gymnast.tokens.rendering import Refusal
from gymnast.types.tokens import ForkReason, Source, TokenCall, TokenLedger, TokenSpan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.tokens.engine import Generated, Sampling
    from gymnast.tokens.rendering import Extension, Rendered, Renderer
    from gymnast.types.json import JsonObject

Runs = tuple[tuple[Source, int], ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids to be sent, and how they relate to earlier calls."""

    ids: list[int]
    parent: int | None
    keep: int
    sources: Runs
    """Of the ids after the first `keep`."""
    reason: ForkReason
    keys: list[Key]
    context: tuple[Key, Key]
    detail: str | None = None
    continues: int | None = None
    """The call whose answer the conversation goes on from, when that is the parent."""


@dataclass(slots=True)
class _Kept:
    """A finished call: which stretch of which sequence it ends."""

    sequence: list[int]
    """All ids up to and beyond this call's end; shared by the calls of a segment."""
    end: int
    context: tuple[Key, Key]
    message: JsonObject
    position: int
    """Where that message stands in its conversation."""
    continues: int | None
    extended: bool = False


class TokenSession:
    """The conversations of one rollout."""

    def __init__(self, renderer: Renderer | None, model: str) -> None:
        """Without a renderer, only calls whose prompts the engine rendered can be taken (`observe`)."""
        self._renderer = renderer
        self._model = model
        self._history = History()
        self._kept: list[_Kept] = []
        self._calls: list[TokenCall] = []

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], args: Mapping[str, object]) -> Prompt:
        """The prompt for these messages. Raises NotRenderable."""
        assert self._renderer is not None
        keys, context = prefix_keys(messages), (context_key(tools), context_key(args))
        place = self._history.place(keys, messages)
        reason, detail = place.reason, None
        if place.parent is not None and reason is ForkReason.EXTENDS:
            parent = self._kept[place.parent]
            reason = _changed(parent.context, context)
            if reason is ForkReason.EXTENDS:
                messages = self._as_said(messages, place.parent)
                sampled, known = self._calls[place.parent].sampled, place.known
                bridge = self._renderer.bridge(messages[:known], sampled, messages[known:], tools, args)
                if not isinstance(bridge, Refusal):
                    return self._extended(place.parent, bridge, keys, context)
                reason, detail = bridge.reason, bridge.detail or None
        whole = self._renderer.prompt(messages, tools, args)
        return self._afresh(whole, place.parent, reason, keys, context, detail)

    def finish(
        self,
        prompt: Prompt,
        sampling: Sampling,
        generated: Generated,
        answer: JsonObject,
        *,
        masked: str | None = None,
    ) -> int:
        """Keep what was sampled after `prompt`; `answer` is the message it was parsed into. The call's number.

        `masked` says why a generation that goes on as text must not be trained on.
        """
        return self._keep(prompt, sampling.temperature, generated, answer, masked=masked)

    def observe(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        prompt_ids: Sequence[int],
        temperature: float,
        generated: Generated,
        answer: JsonObject,
    ) -> int:
        """Keep a call whose prompt the engine rendered itself, with what it reported; drift is found and marked."""
        keys, context = prefix_keys(messages), (context_key(tools), 0)
        place = self._history.place(keys, messages)
        reason, parent, drift = place.reason, place.parent, None
        keep = 0
        if parent is not None:
            kept = self._kept[parent]
            keep = shared_ids(kept.sequence, kept.end, prompt_ids)
            if reason is ForkReason.EXTENDS:
                reason = _changed(kept.context, context)
            if reason is ForkReason.EXTENDS and keep < kept.end:
                reason, drift = ForkReason.ENGINE_RETOKENISED, keep
        prompt = Prompt(
            list(prompt_ids),
            parent if keep or drift is not None else None,
            keep,
            ((Source.PROMPT, len(prompt_ids) - keep),),
            self._branch(parent, reason),
            keys,
            context,
        )
        return self._keep(prompt, temperature, generated, answer, masked=None, ids_sent=False, drift=drift)

    def ledger(self) -> TokenLedger:
        """Everything so far."""
        return TokenLedger(self._calls, self._model, self._renderer.digest if self._renderer is not None else "")

    def _as_said(self, messages: Sequence[JsonObject], call: int | None) -> list[JsonObject]:
        """The conversation with the turns sampled here as they were said: clients leave reasoning out."""
        restored = list(messages)
        while call is not None:
            kept = self._kept[call]
            restored[kept.position] = kept.message
            call = kept.continues
        return restored

    def _extended(self, parent: int, bridge: Extension, keys: list[Key], context: tuple[Key, Key]) -> Prompt:
        kept = self._kept[parent]
        keep = kept.end - bridge.cut
        reason = ForkReason.STOP_TOKEN_OFF_TEMPLATE if bridge.cut else ForkReason.EXTENDS
        ids = kept.sequence[:keep]
        ids.extend(bridge.delta.ids)
        reason = self._branch(parent, reason)
        return Prompt(ids, parent, keep, bridge.delta.sources, reason, keys, context, continues=parent)

    def _afresh(
        self,
        whole: Rendered,
        parent: int | None,
        reason: ForkReason,
        keys: list[Key],
        context: tuple[Key, Key],
        detail: str | None,
    ) -> Prompt:
        """A new segment: what it has in common with the call it departs from is not stored twice."""
        keep = 0
        if parent is not None:
            kept = self._kept[parent]
            keep = shared_ids(kept.sequence, kept.end, whole.ids)
        return Prompt(
            list(whole.ids),
            parent if keep else None,
            keep,
            _runs_after(whole.sources, keep),
            reason,
            keys,
            context,
            detail,
        )

    def _branch(self, parent: int | None, reason: ForkReason) -> ForkReason:
        if reason is ForkReason.EXTENDS and parent is not None and self._kept[parent].extended:
            return ForkReason.BRANCH
        return reason

    def _keep(
        self,
        prompt: Prompt,
        temperature: float,
        generated: Generated,
        answer: JsonObject,
        *,
        masked: str | None,
        ids_sent: bool = True,
        drift: int | None = None,
    ) -> int:
        number = len(self._calls)
        reason = self._branch(prompt.parent, prompt.reason)  # another call may have finished since `begin`
        sampled = list(generated.token_ids)
        delta = prompt.ids[prompt.keep :]
        sequence = self._sequence_for(prompt, reason)
        sequence.extend(delta)
        sequence.extend(sampled)
        self._kept.append(_Kept(sequence, len(sequence), prompt.context, answer, len(prompt.keys), prompt.continues))
        self._history.add(number, prompt.keys, answer)
        self._calls.append(
            TokenCall(
                reason=reason,
                delta=delta,
                sources=list(prompt.sources),
                sampled=sampled,
                logprobs=[] if masked else [float(value) for value in generated.logprobs],
                finish=generated.finish,
                parent=prompt.parent,
                keep=prompt.keep,
                logprob_mode=generated.logprob_mode,
                temperature=temperature,
                weights=[TokenSpan(span.version, span.start, span.end) for span in generated.weight_versions],
                ids_sent=ids_sent,
                drift=drift,
                masked=masked,
                detail=prompt.detail,
            )
        )
        return number

    def _sequence_for(self, prompt: Prompt, reason: ForkReason) -> list[int]:
        """The list that the call's ids are appended to: its parent's own, where it continues that."""
        if prompt.parent is None:
            return prompt.ids[: prompt.keep]
        kept = self._kept[prompt.parent]
        if reason is ForkReason.EXTENDS and len(kept.sequence) == kept.end == prompt.keep:
            kept.extended = True
            return kept.sequence
        return kept.sequence[: prompt.keep]


def room_left(prompt_ids: Sequence[int], context_length: int, sampling: Sampling) -> int:
    """How many tokens may be sampled. Raises ContextOverflow when there is no room for one."""
    room = context_length - len(prompt_ids)
    if room < 1:
        raise ContextOverflow(f"the prompt has {len(prompt_ids)} tokens, the context holds {context_length}")
    return room if sampling.max_tokens is None else min(room, sampling.max_tokens)


def _changed(before: tuple[Key, Key], now: tuple[Key, Key]) -> ForkReason:
    if before[0] != now[0]:
        return ForkReason.TOOLS_CHANGED
    return ForkReason.EXTENDS if before[1] == now[1] else ForkReason.TEMPLATE_ARGS_CHANGED


def shared_ids(sequence: list[int], end: int, ids: Sequence[int]) -> int:
    """How many ids two sequences have in common from the start: halving, since most share nearly all or little."""
    limit = min(end, len(ids))
    other = list(ids[:limit])
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if sequence[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _runs_after(runs: Runs, skip: int) -> Runs:
    """The runs of what follows the first `skip` ids."""
    left: list[tuple[Source, int]] = []
    for source, count in runs:
        used = min(skip, count)
        skip -= used
        if count > used:
            left.append((source, count - used))
    return tuple(left)
