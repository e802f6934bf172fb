"""Token-exact conversations of one rollout: each prompt reuses the ids sampled before it, so trainers see exact ids.

`begin` returns the ids to send; `finish` records what was sampled. With a server that renders prompts itself, `observe`
records the ids it reports. Invariants:
- Nothing changes between `begin` and `finish`, so calls may overlap; the later of two that extend the same call
  becomes a branch.
- A call either EXTENDS its parent (all of the parent's ids, plus a bridge) or starts a new segment, and its `reason`
  says why.
- A call stores only the ids after the first `keep` of its parent; calls of one segment share one list of ids, to
  which only the latest call appends.
- Sampled ids are never rewritten. Where a template or a server would, the conversation forks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gymnast.tokens.backend import ContextOverflow
from gymnast.tokens.experts import new_rows
from gymnast.tokens.history import History, Key, context_key, prefix_keys
from gymnast.tokens.rendering import Refusal
from gymnast.types.tokens import ForkReason, Source, TokenCall, TokenLedger, TokenSpan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.tokens.backend import GeneratedTokens, Sampling
    from gymnast.tokens.media import Media
    from gymnast.tokens.rendering import Extension, Rendered, Renderer
    from gymnast.types.json import JsonObject

Runs = tuple[tuple[Source, int], ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The ids to send, and how they relate to earlier calls."""

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
    """The parent, if the conversation continues its turn."""


@dataclass(frozen=True, slots=True)
class CallTokens:
    prompt_ids: list[int]
    sampled: list[int]
    logprobs: list[float]


@dataclass(slots=True)
class _FinishedCall:
    """A finished call: the first `end` ids of `sequence` are its prompt and generation."""

    sequence: list[int]
    """The ids of a segment, shared by its calls."""
    end: int
    context: tuple[Key, Key]
    message: JsonObject
    position: int
    """The index of the message in its conversation."""
    continues: int | None
    is_extended: bool = False


class TokenConversation:
    def __init__(self, renderer: Renderer | None, model: str) -> None:
        """Without a renderer, only calls whose prompts the server rendered can be recorded (`observe`)."""
        self._renderer = renderer
        self._model = model
        self._history = History()
        self._finished: list[_FinishedCall] = []
        self._calls: list[TokenCall] = []

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], args: Mapping[str, object]) -> Prompt:
        """Make the prompt for these messages. Raises NotRenderable."""
        assert self._renderer is not None
        keys, context = prefix_keys(messages), (context_key(tools), context_key(args))
        match = self._history.match(keys, messages)
        reason, detail = match.reason, None
        if match.parent is not None and reason is ForkReason.EXTENDS:
            reason = _compare_contexts(self._finished[match.parent].context, context)
            if reason is ForkReason.EXTENDS:
                messages = self._restore_turns(messages, match.parent)
                sampled, known = self._calls[match.parent].sampled, match.known
                bridge = self._renderer.bridge(messages[:known], sampled, messages[known:], tools, args)
                if not isinstance(bridge, Refusal):
                    return self._extend(match.parent, bridge, keys, context)
                reason, detail = bridge.reason, bridge.detail or None
        rendered = self._renderer.prompt(messages, tools, args)
        return self._fork(rendered, match.parent, reason, keys, context, detail)

    def finish(
        self,
        prompt: Prompt,
        sampling: Sampling,
        generated: GeneratedTokens,
        message: JsonObject,
        *,
        masked: str | None = None,
    ) -> int:
        """Record the generation after `prompt`, parsed into `message`. Returns the call's number.

        `masked` says why a generation that is only usable as text must not be trained on.
        """
        return self._add_call(prompt, sampling.temperature, generated, message, masked=masked)

    def observe(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject],
        prompt_ids: Sequence[int],
        temperature: float,
        generated: GeneratedTokens,
        message: JsonObject,
        media: Sequence[Media] = (),
    ) -> int:
        """Record a call whose prompt the server rendered, with the ids it reported; drift is detected and recorded.

        `media`: the images and videos of the prompt.
        """
        keys, context = prefix_keys(messages), (context_key(tools), 0)
        match = self._history.match(keys, messages)
        reason, parent, drift = match.reason, match.parent, None
        keep = 0
        if parent is not None:
            call = self._finished[parent]
            keep = count_shared_ids(call.sequence, call.end, prompt_ids)
            if reason is ForkReason.EXTENDS:
                reason = _compare_contexts(call.context, context)
            if reason is ForkReason.EXTENDS and keep < call.end:
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
        digests = [item.digest for item in media]
        number = self._add_call(
            *(prompt, temperature, generated, message), masked=None, ids_sent=False, drift=drift, media=digests
        )
        if messages and messages[-1].get("role") == "assistant":
            self._history.add_joined(number, keys, messages[-1], message)
        return number

    def tokens_of_last_turn(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], sent: CallTokens | None
    ) -> CallTokens | None:
        """The tokens behind the last assistant message, for a server that continues them instead of rendering its text.

        None if that turn, anything before it or the tools were changed: then the text is what the client means.
        `sent` is what the client sends with the turn, for a history that this conversation does not know.
        """
        match = self._history.match(prefix_keys(messages), messages)
        if match.parent is None:
            return sent
        call, tokens = self._finished[match.parent], self._calls[match.parent]
        is_last = not any(message.get("role") == "assistant" for message in messages[match.known :])
        if match.reason is not ForkReason.EXTENDS or not is_last or call.context[0] != context_key(tools):
            return None
        if tokens.masked:
            return None
        return CallTokens(call.sequence[: call.end - len(tokens.sampled)], tokens.sampled, tokens.logprobs)

    def ledger(self) -> TokenLedger:
        """The ledger of all calls so far."""
        return TokenLedger(self._calls, self._model, self._renderer.digest if self._renderer is not None else "")

    def _restore_turns(self, messages: Sequence[JsonObject], number: int | None) -> list[JsonObject]:
        """Replace the turns sampled here by the original messages: clients leave reasoning out."""
        restored = list(messages)
        while number is not None:
            call = self._finished[number]
            restored[call.position] = call.message
            number = call.continues
        return restored

    def _extend(self, parent: int, bridge: Extension, keys: list[Key], context: tuple[Key, Key]) -> Prompt:
        call = self._finished[parent]
        keep = call.end - bridge.cut
        reason = ForkReason.STOP_TOKEN_OFF_TEMPLATE if bridge.cut else ForkReason.EXTENDS
        ids = call.sequence[:keep]
        ids.extend(bridge.delta.ids)
        reason = self._branch(parent, reason)
        return Prompt(ids, parent, keep, bridge.delta.sources, reason, keys, context, continues=parent)

    def _fork(
        self,
        rendered: Rendered,
        parent: int | None,
        reason: ForkReason,
        keys: list[Key],
        context: tuple[Key, Key],
        detail: str | None,
    ) -> Prompt:
        """Start a new segment. The ids it shares with its parent are not stored twice."""
        keep = 0
        if parent is not None:
            call = self._finished[parent]
            keep = count_shared_ids(call.sequence, call.end, rendered.ids)
        sources = _runs_after(rendered.sources, keep)
        return Prompt(list(rendered.ids), parent if keep else None, keep, sources, reason, keys, context, detail)

    def _branch(self, parent: int | None, reason: ForkReason) -> ForkReason:
        if reason is ForkReason.EXTENDS and parent is not None and self._finished[parent].is_extended:
            return ForkReason.BRANCH
        return reason

    def _add_call(
        self,
        prompt: Prompt,
        temperature: float,
        generated: GeneratedTokens,
        message: JsonObject,
        *,
        masked: str | None,
        ids_sent: bool = True,
        drift: int | None = None,
        media: list[str] | None = None,
    ) -> int:
        number = len(self._calls)
        reason = self._branch(prompt.parent, prompt.reason)  # another call may have finished since `begin`
        sampled = list(generated.token_ids)
        delta = prompt.ids[prompt.keep :]
        sequence = self._sequence_for(prompt, reason)
        sequence.extend(delta)
        sequence.extend(sampled)
        self._finished.append(
            _FinishedCall(sequence, len(sequence), prompt.context, message, len(prompt.keys), prompt.continues)
        )
        self._history.add(number, prompt.keys, message)
        self._calls.append(
            TokenCall(
                reason=reason,
                delta=delta,
                sources=list(prompt.sources),
                sampled=sampled,
                logprobs=[] if masked else list(map(float, generated.logprobs)),
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
                experts=new_rows(generated.experts, prompt.keep, len(prompt.ids) + len(sampled)),
                media=media,
            )
        )
        return number

    def _sequence_for(self, prompt: Prompt, reason: ForkReason) -> list[int]:
        """The list to append the call's ids to: its parent's, if it continues that segment."""
        if prompt.parent is None:
            return prompt.ids[: prompt.keep]
        parent = self._finished[prompt.parent]
        if reason is ForkReason.EXTENDS and len(parent.sequence) == parent.end == prompt.keep:
            parent.is_extended = True
            return parent.sequence
        return parent.sequence[: prompt.keep]


def remaining_tokens(prompt_ids: Sequence[int], context_length: int, sampling: Sampling) -> int:
    """How many tokens may be sampled. Raises ContextOverflow if there is no room for one."""
    room = context_length - len(prompt_ids)
    if room < 1:
        raise ContextOverflow(f"the prompt has {len(prompt_ids)} tokens, the context holds {context_length}")
    return room if sampling.max_tokens is None else min(room, sampling.max_tokens)


def _compare_contexts(before: tuple[Key, Key], now: tuple[Key, Key]) -> ForkReason:
    if before[0] != now[0]:
        return ForkReason.TOOLS_CHANGED
    return ForkReason.EXTENDS if before[1] == now[1] else ForkReason.TEMPLATE_ARGS_CHANGED


def count_shared_ids(sequence: list[int], end: int, ids: Sequence[int]) -> int:
    """The length of the common prefix of two sequences, by bisection: most share nearly all or very little."""
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
    """The runs after the first `skip` ids."""
    rest: list[tuple[Source, int]] = []
    for source, count in runs:
        skipped = min(skip, count)
        skip -= skipped
        if count > skipped:
            rest.append((source, count - skipped))
    return tuple(rest)
