"""The transcripts of a page: as many as fit, in chunks that the page unpacks on demand.

Chunks are written to a temporary file as they are made, so that memory does not grow with the run. Rollouts of a task
in the same chunk share their prompt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final

from gymnast.report.payload import pack_text
from gymnast.report.records import read_lines
from gymnast.report.run_setup import total_seconds
from gymnast.report.safe_text import to_one_line
from gymnast.report.selection import keys_by_task, order_rollouts
from gymnast.report.token_text import TokenTexts
from gymnast.report.token_view import view_tokens
from gymnast.report.transcript_items import (
    Limits,
    as_text,
    decode_record,
    explain_incomplete,
    extract_facts,
    prompt_items,
    reply_items,
    tool_items,
    truncate,
)
from gymnast.types.task import AGENT_REF

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.report.run_view import RunView
    from gymnast.types.json import JsonObject

MAX_TRANSCRIPT_BYTES: Final = 10 << 20
"""The default size limit of all transcripts in a page. The columns of 320,000 rollouts take about 2 MB more."""
_CHUNK_CHARACTERS: Final = 256 << 10
"""JSON per chunk: small enough to open a rollout at once, large enough to compress well and to search quickly."""
_MAX_NAME: Final = 120
_SMALL_RUN: Final = Limits(text=1 << 20, items=10_000, total=4 << 20, fact=1 << 16)
"""For runs whose records are smaller than the limit even before compression: practically nothing is cut."""


@dataclass(slots=True)
class Transcripts:
    """Packed chunks, and which of them has which rollout."""

    chunks: IO[bytes]
    """Where chunks are written until the page is; several runs may share it."""
    start: int
    """The offset of the first chunk."""
    sizes: list[int] = field(default_factory=list)
    """The size of each chunk."""
    places: dict[int, dict[int, int]] = field(default_factory=dict)
    """Task -> rollout -> number of its chunk."""
    is_limited_by_size: bool = False

    def __len__(self) -> int:
        return sum(map(len, self.places.values()))

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes)

    def add(self, chunk: Chunk, packed: bytes) -> None:
        """Add a chunk."""
        for task, rollout in chunk.keys:
            self.places.setdefault(task, {})[rollout] = len(self.sizes)
        self.chunks.write(packed)
        self.sizes.append(len(packed))

    def read_chunks(self) -> Iterator[bytes]:
        """Each chunk in order."""
        self.chunks.seek(self.start)
        for size in self.sizes:
            yield self.chunks.read(size)


@dataclass(slots=True)
class Chunk:
    """Transcripts as JSON texts, by task."""

    keys: list[tuple[int, int]] = field(default_factory=list)
    prompts: dict[int, str] = field(default_factory=dict)
    """The prompt of each task: that of its first rollout here."""
    rollouts: dict[tuple[int, int], str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    """Texts of token ids."""
    characters: int = 0

    def add(self, key: int, prompt: JsonObject, transcript: JsonObject) -> None:
        """Add a rollout. Its prompt is stored only if it is not the task's."""
        task, rollout = key >> 32, key & 0xFFFFFFFF
        prompt_text = _json(prompt)
        self.characters += 0 if task in self.prompts else len(prompt_text)
        if self.prompts.setdefault(task, prompt_text) != prompt_text:
            transcript = {**transcript, **prompt}
        text = _json(transcript)
        self.characters += len(text)
        self.keys.append((task, rollout))
        self.rollouts[task, rollout] = text

    def pack(self) -> bytes:
        """The chunk, compressed."""
        tasks: dict[int, list[str]] = {}
        for task, rollout in self.keys:
            tasks.setdefault(task, []).append(f'"{rollout}":{self.rollouts[task, rollout]}')
        blocks = ",".join(
            f'"{task}":{{"prompt":{self.prompts[task]},"rollouts":{{{",".join(texts)}}}}}'
            for task, texts in tasks.items()
        )
        return pack_text(f'{{"texts":{_json(self.texts)},"tasks":{{{blocks}}}}}').encode()

    def halve(self) -> None:
        """Drop the second half of the rollouts."""
        del self.keys[len(self.keys) // 2 :]


def collect_transcripts(
    run: RunView, chunks: IO[bytes], *, limit: int | None = None, max_bytes: int | None = MAX_TRANSCRIPT_BYTES
) -> Transcripts:
    """Write at most `limit` transcripts of at most `max_bytes`, the most informative first; None for no limit."""
    is_small = max_bytes is None or int(run.table.output_bytes.sum()) < max_bytes
    takes_all = max_bytes is None and (limit is None or limit >= run.total)
    keys = keys_by_task(run) if takes_all else islice(order_rollouts(run), limit)
    transcripts = Transcripts(chunks, chunks.tell())
    for chunk in _make_chunks(run, keys, _SMALL_RUN if is_small else Limits(), _chunk_size(max_bytes)):
        count = len(chunk.keys)
        packed = _pack(chunk, None if max_bytes is None else max_bytes - transcripts.size_bytes)
        if chunk.keys:
            transcripts.add(chunk, packed)
        if len(chunk.keys) < count:
            transcripts.is_limited_by_size = True
            break
    return transcripts


def _chunk_size(max_bytes: int | None) -> int:
    return _CHUNK_CHARACTERS if max_bytes is None else min(_CHUNK_CHARACTERS, max(1, max_bytes // 8))


def _pack(chunk: Chunk, max_bytes: int | None) -> bytes:
    """Pack a chunk; drops rollouts until it fits."""
    packed = chunk.pack()
    while max_bytes is not None and chunk.keys and len(packed) > max_bytes:
        chunk.halve()
        packed = chunk.pack()
    return packed


def _make_chunks(run: RunView, keys: Iterable[int], limits: Limits, characters: int) -> Iterator[Chunk]:
    chunk, texts = Chunk(), TokenTexts(run.manifest)
    for key, line in read_lines(run, keys):
        chunk.add(key, *_transcript(line, run, limits, texts))
        if chunk.characters >= characters:
            chunk.texts = texts.take()
            yield chunk
            chunk = Chunk()
    if chunk.keys:
        chunk.texts = texts.take()
        yield chunk


def _transcript(line: bytes, run: RunView, limits: Limits, texts: TokenTexts) -> tuple[JsonObject, JsonObject]:
    """The prompt of a record with its tools, and everything after it."""
    record = decode_record(line)
    if record is None:
        return {}, {"note": "this record cannot be decoded", "items": []}
    prompt: JsonObject = {"prompt": prompt_items(record, limits)}
    if tools := tool_items(record, limits):
        prompt["tools"] = tools
    transcript: JsonObject = {"items": reply_items(record, limits), "facts": extract_facts(record, limits)}
    response, agent = record.get("response"), record.get(AGENT_REF)
    details = {
        "agent": to_one_line(as_text(agent["name"]), _MAX_NAME)
        if isinstance(agent, dict) and agent.get("name")
        else None,
        "model": to_one_line(as_text(response["model"]), _MAX_NAME)
        if isinstance(response, dict) and response.get("model")
        else None,
        "seconds": total_seconds(record, run.setup.seconds_source),
        "ending": explain_incomplete(record),
        "tokens": view_tokens(record, texts),
    }
    transcript |= {name: value for name, value in details.items() if value is not None}
    if isinstance(failure := record.get("failure"), dict):
        transcript["failure"] = {name: truncate(as_text(value), limits)["text"] for name, value in failure.items()}
    return prompt, transcript


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
