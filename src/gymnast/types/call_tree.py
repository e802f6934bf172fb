"""How the model calls of one rollout hang together: which call continues which, and what each adds to it.

Prompts repeat the conversation so far, so they are kept as differences: a call names its parent, which stretches of the
parent's conversation it repeats, and the entries it adds. Storage is linear in what was said. Where a call continues
nothing, what it repeats and quotes tells why. Pure; nothing here knows tokens or sockets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from gymnast.types.conversation import Entry, answer_of, entries_of, joined_digest, prefix_digests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gymnast.types.json import JsonObject

_LEAST_EVIDENCE: Final = 12
"""Characters a text must have before finding it again elsewhere says anything."""


class CallReason(StrEnum):
    """How a call relates to the calls before it. Only `EXTENDS` continues a segment; all others begin one."""

    FIRST = "first"
    EXTENDS = "extends"
    BRANCH = "branch"
    """The same conversation up to a point, asked again or continued differently."""
    HISTORY_EDITED = "history_edited"
    """Earlier messages were changed; others are still there."""
    COMPACTED = "compacted"
    """The conversation goes on with less of it: a summary, or its oldest part left out."""
    SUB_AGENT = "sub_agent"
    """A conversation of its own, after which (or beside which) an earlier one goes on."""
    NEW_CONVERSATION = "new_conversation"
    """A conversation of its own, and nothing before it was taken up again."""


class Part(NamedTuple):
    """A stretch of a prompt: of the parent's conversation, or of the list of entries."""

    of_parent: bool
    start: int
    stop: int


@dataclass(slots=True)
class CallNode:
    """One call. Its prompt is its parts, one after the other."""

    index: int
    parent: int | None
    reason: CallReason
    segment: int
    """The number of the call that began the segment."""
    parts: list[Part] = field(default_factory=list)
    length: int = 0
    """Entries of the prompt."""
    output: int | None = None
    """The entry of the answer, once there is one."""
    failed: bool = False

    @property
    def shared(self) -> int:
        """Entries of the parent's conversation that the prompt begins with."""
        return self.parts[0].stop if self.parts and self.parts[0][:2] == (True, 0) else 0


class CallTree:
    """Takes calls in the order in which they begin: `begin`, then `finish` or `fail`."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """Everything that was said, once, in the order in which it came up."""
        self.calls: list[CallNode] = []
        self._known: dict[bytes, tuple[int, int]] = {}
        """Beginnings of conversations by digest: their last entry, and the last call that begins so."""
        self._ends: dict[bytes, int] = {}
        """Conversations that end with a model's answer: the call that was answered."""
        self._index: dict[bytes, int] = {}
        """Entries by what they are."""
        self._seen_in: dict[int, int] = {}
        """The last call whose conversation has an entry."""
        self._claimed: dict[int, int] = {}
        """Answered calls, and the call that continues each."""
        self._digests: list[bytes] = []

    def begin(self, prompt: Sequence[JsonObject], instructions: str | None = None) -> CallNode:
        """A call with this prompt begins."""
        asked = entries_of(prompt, instructions)
        digests = prefix_digests(asked)
        sizes = range(len(digests), 0, -1)
        end = next((size for size in sizes if digests[size - 1] in self._ends), 0)
        index = len(self.calls)
        if end and self._claimed.setdefault(self._ends[digests[end - 1]], index) == index:
            parent = self.calls[self._ends[digests[end - 1]]]
            node = CallNode(index, parent.index, CallReason.EXTENDS, parent.segment)
        else:
            kept = next((size for size in sizes if digests[size - 1] in self._known), 0)
            node = self._starting(asked, kept, digests)
        node.length = len(asked)
        self._put(node, asked, digests, end if node.reason is CallReason.EXTENDS else 0)
        self.calls.append(node)
        self._note_resumption(node)
        return node

    def finish(self, node: CallNode, output: Sequence[JsonObject]) -> None:
        """The call was answered with these items."""
        answer = answer_of(output)
        node.output = self._index[answer.identity] = len(self.entries)
        self.entries.append(answer)  # even if it was said before: each answer has its own reasoning and tokens
        digest = joined_digest(self._digests[node.index], answer.key)
        self._known[digest] = (node.output, node.index)
        self._ends[digest] = node.index
        self._seen_in[node.output] = node.index

    def fail(self, node: CallNode) -> None:
        """The call was not answered: the next one with the same prompt takes its place."""
        node.failed = True
        if node.parent is not None and self._claimed.get(node.parent) == node.index:
            del self._claimed[node.parent]

    def prompt_of(self, node: CallNode) -> list[int]:
        """The entries of a call's prompt."""
        found: list[int] = []
        for step in self.path_to(node):
            found = put_together(found, step.parts)
            if step is not node and step.output is not None:
                found.append(step.output)
        return found

    def conversation_of(self, node: CallNode) -> list[int]:
        """The entries of a call's prompt and its answer."""
        prompt = self.prompt_of(node)
        return prompt if node.output is None else [*prompt, node.output]

    def path_to(self, node: CallNode) -> list[CallNode]:
        """The calls from the first ancestor to this one."""
        return [node, *self._ancestors(node)][::-1]

    def is_main(self, node: CallNode) -> bool:
        """Whether a call belongs to the conversation the rollout is about, and not to a sub-agent's."""
        return all(step.reason is not CallReason.SUB_AGENT for step in (node, *self._ancestors(node)))

    def items(self, indices: Iterable[int]) -> list[JsonObject]:
        """The items of entries."""
        return [item for index in indices for item in self.entries[index].items]

    # --- placing a call ----------------------------------------------------------------------------------------------

    def _starting(self, asked: list[Entry], kept: int, digests: list[bytes]) -> CallNode:
        """A call that begins a segment."""
        index = len(self.calls)
        if not self.calls:
            return CallNode(index, None, CallReason.FIRST, index)
        content = next((place for place, entry in enumerate(asked) if entry.role != "system"), len(asked))
        relative = self._relative(asked[content:], kept - content, digests[content:])
        if relative is not None and relative.failed and relative.length == kept == len(asked):
            return CallNode(index, relative.parent, relative.reason, index)
        said = "\n".join(entry.text for entry in asked[content:]).strip()
        if all(entry.role != "assistant" for entry in asked):
            caller = self._handing_over(said, -1 if relative is None else relative.index)
            if caller is not None:
                return CallNode(index, caller.index, CallReason.SUB_AGENT, index)
        if relative is None:
            return CallNode(index, *self._unrelated(said), index)
        if kept > content:
            after_answer = digests[kept - 1] in self._ends
            reason = self._diverging(asked[kept:], kept, relative, after_answer=after_answer)
        else:
            reason = CallReason.COMPACTED if len(asked) < relative.length else CallReason.HISTORY_EDITED
        return CallNode(index, relative.index, reason, index)

    def _relative(self, content: list[Entry], kept: int, digests: list[bytes]) -> CallNode | None:
        """The latest call that begins like this one, or else has said some of the same."""
        if kept > 0:
            return self.calls[self._known[digests[kept - 1]][1]]
        seen = [self._seen_in[found] for entry in content if (found := self._find(entry)) is not None]
        return self.calls[max(seen)] if seen else None

    def _diverging(self, rest: list[Entry], kept: int, parent: CallNode, *, after_answer: bool) -> CallReason:
        """A prompt that leaves an earlier conversation after `kept` entries and goes on with `rest`."""
        left = set(self.conversation_of(parent)[kept:])
        again = any(self._find(entry) in left for entry in rest)
        again = again or (bool(rest) and rest[0].role == "assistant")  # words that no call was answered with
        if kept + len(rest) < parent.length and (again or not after_answer):
            return CallReason.COMPACTED
        return CallReason.HISTORY_EDITED if again else CallReason.BRANCH

    def _handing_over(self, said: str, after: int) -> CallNode | None:
        """The latest call, after that one, whose answer calls a tool with what is said here."""
        for call in reversed(self.calls[after + 1 :]):
            arguments = self.entries[call.output].arguments if call.output is not None else []
            if any(_is_handed_over(argument, said) for argument in arguments):
                return call
        return None

    def _unrelated(self, said: str) -> tuple[int, CallReason]:
        """A prompt that repeats nothing: what it quotes tells where it comes from."""
        for call in reversed(self.calls):
            text = self.entries[call.output].text.strip() if call.output is not None else ""
            if len(text) >= _LEAST_EVIDENCE and text in said:
                return call.index, CallReason.COMPACTED
        last = next((call for call in reversed(self.calls) if self.is_main(call)), self.calls[-1])
        return last.index, CallReason.NEW_CONVERSATION

    def _note_resumption(self, node: CallNode) -> None:
        """A conversation that seemed to be over goes on: what was taken for its successor was beside it."""
        if node.parent is None or node.segment == node.index:
            return
        resumed = self.calls[node.parent]
        for other in self.calls[resumed.index + 1 : node.index]:
            if other.segment != other.index or other.parent is None:
                continue
            successor = other.reason is CallReason.COMPACTED and self.calls[other.parent].segment == resumed.segment
            if successor or other.reason is CallReason.NEW_CONVERSATION:
                other.reason = CallReason.BRANCH if other.shared else CallReason.SUB_AGENT

    # --- storing -----------------------------------------------------------------------------------------------------

    def _put(self, node: CallNode, asked: list[Entry], digests: list[bytes], whole: int) -> None:
        """Store a prompt; its first `whole` entries are all of the parent's conversation."""
        indices: list[int] = []
        for entry, digest in zip(asked, digests, strict=True):
            known = self._known.get(digest)
            index = known[0] if known is not None else self._store(entry)
            self._known[digest] = (index, node.index)
            self._seen_in[index] = node.index
            indices.append(index)
        if whole:  # the usual case: nothing has to be looked for
            node.parts = [Part(of_parent=True, start=0, stop=whole), *taken_apart(indices[whole:], [])]
        else:
            before = self.conversation_of(self.calls[node.parent]) if node.parent is not None else []
            node.parts = taken_apart(indices, before)
        self._digests.append(digests[-1] if digests else b"")

    def _store(self, entry: Entry) -> int:
        found = self._index.setdefault(entry.identity, len(self.entries))
        if found == len(self.entries):
            self.entries.append(entry)
        return found

    def _find(self, entry: Entry) -> int | None:
        return self._index.get(entry.identity)

    def _ancestors(self, node: CallNode) -> Iterator[CallNode]:
        while node.parent is not None:
            node = self.calls[node.parent]
            yield node


def _is_handed_over(argument: str, said: str) -> bool:
    """Whether a prompt is, for the most part, what a tool was called with."""
    if len(argument) < _LEAST_EVIDENCE or len(said) < _LEAST_EVIDENCE:
        return argument.strip() == said
    return said in argument or (argument in said and 2 * len(argument) >= len(said))


def taken_apart(entries: Sequence[int], before: Sequence[int]) -> list[Part]:
    """Entries as stretches of the conversation before and of the list of entries."""
    places = {entry: place for place, entry in reversed(list(enumerate(before)))}
    parts: list[Part] = []
    for entry in entries:
        last = parts[-1] if parts else None
        if last is not None and last.of_parent and last.stop < len(before) and before[last.stop] == entry:
            parts[-1] = last._replace(stop=last.stop + 1)
        elif last is not None and not last.of_parent and last.stop == entry and entry not in places:
            parts[-1] = last._replace(stop=entry + 1)
        else:
            start = places.get(entry, entry)
            parts.append(Part(entry in places, start, start + 1))
    return parts


def put_together(before: list[int], parts: Sequence[Part]) -> list[int]:
    """The entries that parts stand for. `before`, the parent's conversation, may be changed."""
    if parts and parts[0][:2] == (True, 0) and not any(part.of_parent for part in parts[1:]):
        del before[parts[0].stop :]  # the usual case, without copying the conversation for every call
        for part in parts[1:]:
            before.extend(range(part.start, part.stop))
        return before
    found: list[int] = []
    for part in parts:
        found.extend(before[part.start : part.stop] if part.of_parent else range(part.start, part.stop))
    return found
