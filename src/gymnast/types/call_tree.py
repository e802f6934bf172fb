"""The tree of a rollout's model calls: which call continues which, and what each adds.

Prompts repeat the conversation so far, so they are stored as differences: a call names its parent, the ranges of the
parent's conversation that it repeats, and the entries it adds. Storage is linear in the length of the conversation. If
a call continues nothing, what it repeats and quotes tells why (`CallReason`). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from gymnast.types.conversation import Entry, extend_digest, make_entries, model_turn, prefix_digests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gymnast.types.json import JsonObject

_MIN_EVIDENCE: Final = 12
"""Minimum length of a text for which a second occurrence means anything."""


class CallReason(StrEnum):
    """How a call relates to the calls before it. Only `EXTENDS` continues a segment; all others start one."""

    FIRST = "first"
    EXTENDS = "extends"
    BRANCH = "branch"
    """The same conversation up to a point, repeated or continued differently."""
    HISTORY_EDITED = "history_edited"
    """Some earlier messages were changed, others are unchanged."""
    COMPACTED = "compacted"
    """The conversation continues with less of it: a summary, or without its oldest part."""
    SUB_AGENT = "sub_agent"
    """A separate conversation, during or after which an earlier one continues."""
    NEW_CONVERSATION = "new_conversation"
    """A separate conversation, after which no earlier one continues."""


class Part(NamedTuple):
    """A range of a prompt: of the parent's conversation, or of the list of entries."""

    of_parent: bool
    start: int
    stop: int


@dataclass(slots=True)
class CallNode:
    """One call. Its prompt is the concatenation of its parts."""

    index: int
    parent: int | None
    reason: CallReason
    segment: int
    """The index of the call that started the segment."""
    parts: list[Part] = field(default_factory=list)
    length: int = 0
    """The number of entries of the prompt."""
    output: int | None = None
    """The entry of the response, once there is one."""
    failed: bool = False

    @property
    def shared(self) -> int:
        """How many entries of the parent's conversation the prompt starts with."""
        return self.parts[0].stop if self.parts and self.parts[0][:2] == (True, 0) else 0


class CallTree:
    """Add calls in the order in which they start: `begin`, then `finish` or `fail`."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """All entries, once each, in order of appearance."""
        self.calls: list[CallNode] = []
        self._known: dict[bytes, tuple[int, int]] = {}
        """Conversation prefixes by digest: their last entry, and the last call that starts with them."""
        self._ends: dict[bytes, int] = {}
        """Conversations that end with a response, by digest: the call that returned it."""
        self._index: dict[bytes, int] = {}
        """Entries by identity."""
        self._seen_in: dict[int, int] = {}
        """The last call whose conversation has the entry."""
        self._claimed: dict[int, int] = {}
        """Calls with a response, and the call that continues each."""
        self._digests: list[bytes] = []

    def begin(self, prompt: Sequence[JsonObject], instructions: str | None = None) -> CallNode:
        entries = make_entries(prompt, instructions)
        digests = prefix_digests(entries)
        sizes = range(len(digests), 0, -1)
        end = next((size for size in sizes if digests[size - 1] in self._ends), 0)
        index = len(self.calls)
        if end and self._claimed.setdefault(self._ends[digests[end - 1]], index) == index:
            parent = self.calls[self._ends[digests[end - 1]]]
            node = CallNode(index, parent.index, CallReason.EXTENDS, parent.segment)
        else:
            shared = next((size for size in sizes if digests[size - 1] in self._known), 0)
            node = self._start_segment(entries, shared, digests)
        node.length = len(entries)
        self._store_prompt(node, entries, digests, end if node.reason is CallReason.EXTENDS else 0)
        self.calls.append(node)
        self._reclassify(node)
        return node

    def finish(self, node: CallNode, output: Sequence[JsonObject]) -> None:
        """The call returned these items."""
        turn = model_turn(output)
        node.output = self._index[turn.identity] = len(self.entries)
        self.entries.append(turn)  # even if it is a repetition: each response has its own reasoning and tokens
        digest = extend_digest(self._digests[node.index], turn.key)
        self._known[digest] = (node.output, node.index)
        self._ends[digest] = node.index
        self._seen_in[node.output] = node.index

    def fail(self, node: CallNode) -> None:
        """The call failed: the next one with the same prompt replaces it."""
        node.failed = True
        if node.parent is not None and self._claimed.get(node.parent) == node.index:
            del self._claimed[node.parent]

    def prompt_of(self, node: CallNode) -> list[int]:
        """The entries of a call's prompt."""
        entries: list[int] = []
        for step in self.path_to(node):
            entries = join_parts(entries, step.parts)
            if step is not node and step.output is not None:
                entries.append(step.output)
        return entries

    def conversation_of(self, node: CallNode) -> list[int]:
        """The entries of a call's prompt and its response."""
        prompt = self.prompt_of(node)
        return prompt if node.output is None else [*prompt, node.output]

    def path_to(self, node: CallNode) -> list[CallNode]:
        """The calls from the first ancestor to this one."""
        return [node, *self._ancestors(node)][::-1]

    def is_main(self, node: CallNode) -> bool:
        """Whether a call belongs to the rollout's main conversation, not to a sub-agent's."""
        return all(step.reason is not CallReason.SUB_AGENT for step in (node, *self._ancestors(node)))

    def items(self, indices: Iterable[int]) -> list[JsonObject]:
        return [item for index in indices for item in self.entries[index].items]

    # --- relating a call to earlier ones ------------------------------------------------------------------------------

    def _start_segment(self, entries: list[Entry], shared: int, digests: list[bytes]) -> CallNode:
        """The node of a call that starts a segment. `shared`: how many entries an earlier conversation starts with."""
        index = len(self.calls)
        if not self.calls:
            return CallNode(index, None, CallReason.FIRST, index)
        content = next((index for index, entry in enumerate(entries) if entry.role != "system"), len(entries))
        relative = self._find_relative(entries[content:], shared - content, digests[content:])
        if relative is not None and relative.failed and relative.length == shared == len(entries):
            return CallNode(index, relative.parent, relative.reason, index)
        text = "\n".join(entry.text for entry in entries[content:]).strip()
        if all(entry.role != "assistant" for entry in entries):
            caller = self._find_delegation(text, -1 if relative is None else relative.index)
            if caller is not None:
                return CallNode(index, caller.index, CallReason.SUB_AGENT, index)
        if relative is None:
            return CallNode(index, *self._relate_by_quote(text), index)
        if shared > content:
            after_response = digests[shared - 1] in self._ends
            reason = self._why_diverging(entries[shared:], shared, relative, after_response=after_response)
        else:
            reason = CallReason.COMPACTED if len(entries) < relative.length else CallReason.HISTORY_EDITED
        return CallNode(index, relative.index, reason, index)

    def _find_relative(self, content: list[Entry], shared: int, digests: list[bytes]) -> CallNode | None:
        """The latest call that starts like this one, else the latest that has an entry in common."""
        if shared > 0:
            return self.calls[self._known[digests[shared - 1]][1]]
        seen = [self._seen_in[index] for entry in content if (index := self._find(entry)) is not None]
        return self.calls[max(seen)] if seen else None

    def _why_diverging(self, rest: list[Entry], shared: int, parent: CallNode, *, after_response: bool) -> CallReason:
        """Why a prompt leaves an earlier conversation after `shared` entries and continues with `rest`."""
        dropped = set(self.conversation_of(parent)[shared:])
        is_edit = any(self._find(entry) in dropped for entry in rest)
        is_edit = is_edit or (bool(rest) and rest[0].role == "assistant")  # a turn that no call returned
        if shared + len(rest) < parent.length and (is_edit or not after_response):
            return CallReason.COMPACTED
        return CallReason.HISTORY_EDITED if is_edit else CallReason.BRANCH

    def _find_delegation(self, text: str, after: int) -> CallNode | None:
        """The latest call after `after` whose response calls a tool with this text."""
        for call in reversed(self.calls[after + 1 :]):
            arguments = self.entries[call.output].arguments if call.output is not None else []
            if any(_is_delegated(argument, text) for argument in arguments):
                return call
        return None

    def _relate_by_quote(self, text: str) -> tuple[int, CallReason]:
        """Parent and reason of a prompt that repeats no entry, from what it quotes."""
        for call in reversed(self.calls):
            response = self.entries[call.output].text.strip() if call.output is not None else ""
            if len(response) >= _MIN_EVIDENCE and response in text:
                return call.index, CallReason.COMPACTED
        last = next((call for call in reversed(self.calls) if self.is_main(call)), self.calls[-1])
        return last.index, CallReason.NEW_CONVERSATION

    def _reclassify(self, node: CallNode) -> None:
        """A conversation that seemed over continues: what seemed to succeed it was a sub-agent or a branch."""
        if node.parent is None or node.segment == node.index:
            return
        resumed = self.calls[node.parent]
        for other in self.calls[resumed.index + 1 : node.index]:
            if other.segment != other.index or other.parent is None:
                continue
            is_successor = other.reason is CallReason.COMPACTED and self.calls[other.parent].segment == resumed.segment
            if is_successor or other.reason is CallReason.NEW_CONVERSATION:
                other.reason = CallReason.BRANCH if other.shared else CallReason.SUB_AGENT

    # --- storing -----------------------------------------------------------------------------------------------------

    def _store_prompt(self, node: CallNode, entries: list[Entry], digests: list[bytes], inherited: int) -> None:
        """Store a prompt; its first `inherited` entries are the parent's whole conversation."""
        indices: list[int] = []
        for entry, digest in zip(entries, digests, strict=True):
            known = self._known.get(digest)
            index = known[0] if known is not None else self._store(entry)
            self._known[digest] = (index, node.index)
            self._seen_in[index] = node.index
            indices.append(index)
        if inherited:  # the usual case: nothing to search for
            node.parts = [Part(of_parent=True, start=0, stop=inherited), *split_into_parts(indices[inherited:], [])]
        else:
            before = self.conversation_of(self.calls[node.parent]) if node.parent is not None else []
            node.parts = split_into_parts(indices, before)
        self._digests.append(digests[-1] if digests else b"")

    def _store(self, entry: Entry) -> int:
        index = self._index.setdefault(entry.identity, len(self.entries))
        if index == len(self.entries):
            self.entries.append(entry)
        return index

    def _find(self, entry: Entry) -> int | None:
        return self._index.get(entry.identity)

    def _ancestors(self, node: CallNode) -> Iterator[CallNode]:
        while node.parent is not None:
            node = self.calls[node.parent]
            yield node


def _is_delegated(argument: str, text: str) -> bool:
    """Whether a prompt is, for the most part, an argument of a tool call."""
    if len(argument) < _MIN_EVIDENCE or len(text) < _MIN_EVIDENCE:
        return argument.strip() == text
    return text in argument or (argument in text and 2 * len(argument) >= len(text))


def split_into_parts(entries: Sequence[int], before: Sequence[int]) -> list[Part]:
    """Entries as ranges of the conversation before and of the list of entries."""
    positions = {entry: position for position, entry in reversed(list(enumerate(before)))}
    parts: list[Part] = []
    for entry in entries:
        last = parts[-1] if parts else None
        if last is not None and last.of_parent and last.stop < len(before) and before[last.stop] == entry:
            parts[-1] = last._replace(stop=last.stop + 1)
        elif last is not None and not last.of_parent and last.stop == entry and entry not in positions:
            parts[-1] = last._replace(stop=entry + 1)
        else:
            start = positions.get(entry, entry)
            parts.append(Part(entry in positions, start, start + 1))
    return parts


def join_parts(before: list[int], parts: Sequence[Part]) -> list[int]:
    """The entries of parts. `before`, the parent's conversation, may be changed."""
    if parts and parts[0][:2] == (True, 0) and not any(part.of_parent for part in parts[1:]):
        del before[parts[0].stop :]  # the usual case, without copying the conversation for every call
        for part in parts[1:]:
            before.extend(range(part.start, part.stop))
        return before
    entries: list[int] = []
    for part in parts:
        entries.extend(before[part.start : part.stop] if part.of_parent else range(part.start, part.stop))
    return entries
