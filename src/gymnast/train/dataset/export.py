"""`gymnast export`: rollouts of runs as a dataset folder. Two passes: an index of what is wanted, then the rows.

The result depends on the runs and the options alone: the same export gives the same bytes, so repeating one is cheap to
check, and an upload that was interrupted can be continued.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Self

import orjson

from gymnast import __version__
from gymnast.errors import DataError, UserError
from gymnast.runtime.garbage import rare_garbage_collection
from gymnast.store.keys import key_of_line
from gymnast.store.lines import numbered_lines
from gymnast.store.manifest import read_manifest
from gymnast.store.paths import RunPaths
from gymnast.store.scrub_rows import RowScrubber
from gymnast.train.dataset.card import render_card
from gymnast.train.dataset.chat import ChatReader, NotChatError
from gymnast.train.dataset.files import CARD, MANIFEST, SHARD_BYTES, DataFile, DatasetFolder
from gymnast.train.dataset.index import Entry, Filters, Index, Indexer, RolloutFacts, open_runs, read_lines
from gymnast.train.dataset.records import WholeRecordDecoder, decode_record, is_truncated_record
from gymnast.train.dataset.rows import Layout, RowMaker, is_other_field, task_row
from gymnast.train.dataset.schema import columns_of
from gymnast.train.dataset.select import PairRules, assign_splits, select_best, select_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from gymnast.config.secrets import Scrubber
    from gymnast.train.dataset.chat import Chat, Reasoning
    from gymnast.train.dataset.index import RunSource
    from gymnast.train.dataset.records import Record
    from gymnast.train.dataset.rows import Target
    from gymnast.train.dataset.schema import Kind
    from gymnast.types.json import JsonObject

FORMATS: Final = ("sft", "dpo", "kto", "rl", "jsonl", "parquet", "datasets")
CONTAINERS: Final = ("jsonl", "parquet", "datasets")
SCHEMA_VERSION: Final = 1
_PAIRS: Final = "pairs need rollouts of one task with different rewards: collect more with --resume --extend -n 8"
_NO_CHAT: Final = "these records have no conversation that a dataset could hold; export their tasks with --format rl"
_HINTS: Final = {
    "no_reward": "the records have no reward: see why with gymnast doctor RUN, or score them with gymnast reverify",
    "truncated": "add --include-truncated",
    "masked": "add --include-masked",
    "where": "relax --where",
    "label": "relax --label and --not-label",
    "too_long": "raise --max-length",
    "task_with_one_rollout": _PAIRS,
    "task_without_margin": f"lower --margin; {_PAIRS}",
    "pair_with_same_completion": _PAIRS,
    "both_better_and_worse": _PAIRS,
    "pair_with_different_prompts": "the rollouts of a task have different prompts: export with --format sft or kto",
    "pair_with_several_turns": "OpenAI takes pairs of one message each: leave out --for openai",
    "hosted_tool": "conversations with tools that the model's provider ran cannot be exported",
}
"""What to do if nothing is left, by the most frequent reason."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export, and how."""

    runs: tuple[Path, ...]
    output: Path
    format: str
    files: str | None = None
    """The container; by default JSONL, or the one that the format names."""
    target: Target | None = None
    filters: Filters = field(default_factory=Filters)
    best_of: int | None = None
    """Keep so many of the best rollouts of each task."""
    pairs: PairRules = field(default_factory=PairRules)
    threshold: float | None = None
    """For `kto`: rewards from this on are desired. Without it, the rollouts of pairs are labelled."""
    reasoning: Reasoning | None = None
    splits: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    overwrite: bool = False
    shard_bytes: int = SHARD_BYTES

    @property
    def container(self) -> str:
        return self.files or (self.format if self.format in CONTAINERS else "jsonl")

    @property
    def layout(self) -> Layout:
        target = self.target or ("nemo-rl" if self.format == "rl" else "trl")
        return Layout(self.format, target, self.container != "jsonl")

    @property
    def needs_pairs(self) -> bool:
        return self.format == "dpo" or (self.format == "kto" and self.threshold is None)


@dataclass(slots=True)
class ExportResult:
    """What was written."""

    folder: Path
    files: list[DataFile]
    manifest: JsonObject
    is_unchanged: bool = False
    """The folder already had this export."""
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> JsonObject:
        return {"folder": str(self.folder), "unchanged": self.is_unchanged, **self.manifest}


def export_dataset(request: ExportRequest, scrubber: Scrubber) -> ExportResult:
    """Export; nothing is written unless all of it is. Raises UserError if no row is left."""
    request.layout.check()
    with rare_garbage_collection():
        return _export(request, scrubber, _read_earlier(request))


class _PartsFoundError(Exception):
    """A message has content that is not text, for which typed columns have another form."""


def _export(request: ExportRequest, scrubber: Scrubber, earlier: JsonObject | None) -> ExportResult:
    try:
        return _write(request, _Export(request, scrubber), earlier)
    except _PartsFoundError:
        return _write(request, _Export(request, scrubber, has_parts=True), earlier)


def _write(request: ExportRequest, export: _Export, earlier: JsonObject | None) -> ExportResult:
    with DatasetFolder(
        request.output, request.container, export.scrubber, export.columns, request.shard_bytes
    ) as folder:
        folder.write(export.rows())
        files = folder.finish(export.splits)
        manifest = export.manifest(files)
        if not manifest["counts"]["rows"]:
            raise _nothing_left(manifest["counts"])
        columns = export.columns if request.format != "rl" and request.layout.target == "trl" else None
        card = render_card(manifest, files, columns, export.splits)
        texts = {CARD: card, MANIFEST: orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n"}
        is_unchanged = earlier is not None and earlier.get("files") == manifest["files"]
        if is_unchanged and earlier == manifest:
            return ExportResult(request.output, files, manifest, is_unchanged=True, notes=export.notes())
        if earlier is not None and not request.overwrite:
            hint = "add --overwrite, or choose another folder"
            raise UserError("the folder has another export", where=str(request.output), next=hint)
        old = [str(file["path"]) for file in (earlier or {}).get("files", ())]
        folder.commit(files, texts, replace=old)
    return ExportResult(request.output, files, manifest, notes=export.notes())


class _Export:
    """One export: the index, the selection and the rows.

    If one pass is enough, `_indexer` exists and `index` fills while rows are written; otherwise `index` is complete
    before the first row. All other attributes follow from the request and never change.
    """

    def __init__(self, request: ExportRequest, scrubber: Scrubber, *, has_parts: bool = False) -> None:
        self.request = request
        self._has_parts = has_parts
        self.scrubber = RowScrubber(scrubber)
        self._runs = open_runs(request.runs)
        layout, filters = request.layout, request.filters
        self._style = layout.style(request.reasoning)
        self._is_typed = layout.is_typed
        self._is_flat = request.format in CONTAINERS
        self._decoder = WholeRecordDecoder(is_other_field)
        with_prompts = bool(request.splits) or request.needs_pairs
        converts = with_prompts or filters.dedup or filters.max_bytes is not None
        reader = ChatReader(self._style, compares=filters.dedup) if converts else None
        indexer = Indexer(
            self._runs,
            filters,
            reader,
            with_prompts=with_prompts,
            finds_parts=layout.is_typed,
            decode=self._decoder.decode if self._is_flat else decode_record,
        )
        indexer.is_stream = self._is_one_pass(indexer)
        self._indexer = indexer if indexer.is_stream else None
        self.index = indexer.index if self._indexer is not None else indexer.build()
        has_parts = has_parts or self.index.has_parts
        if layout.is_typed and has_parts:
            self._style = replace(self._style, escaped_content=True)
        self._reader = ChatReader(self._style, compares=request.needs_pairs)
        if self._indexer is not None and reader is not None:
            self._indexer.reader = self._reader  # its chats are the ones that are written
        self._maker = RowMaker(layout, [run.name for run in self._runs])
        self._split_of = assign_splits(self.index, request.splits, request.seed) if request.splits else {}
        self.splits = list(request.splits) or ["train"]
        self._reasoning_dropped = 0
        self._labels: set[bool] = set()
        """Those that a threshold gave."""
        self._rows: Counter[str] = Counter()
        self._tasks: set[tuple[int, int]] = set()

    @property
    def columns(self) -> dict[str, Kind]:
        """The columns of the rows; final once all rows were made."""
        has_parts = self._has_parts or self.index.has_parts or self._reader.has_parts
        return columns_of(self.request.format, has_parts=has_parts)

    def _is_one_pass(self, indexer: Indexer) -> bool:
        """Whether a rollout can be written when it is read, because no choice depends on other rollouts."""
        request = self.request
        is_rollout = request.format not in {"dpo", "rl"} and not request.needs_pairs
        depends = request.splits or request.best_of is not None or request.filters.dedup or indexer.needs_tasks
        return is_rollout and not depends

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """Every row with its split."""
        match self.request.format:
            case "rl":
                rows = self._task_rows()
            case "dpo":
                rows = self._pair_rows()
            case "kto":
                rows = self._kto_rows()
            case _:
                rows = self._rollout_rows()
        split_of, add_task, split = self._split_of, self._tasks.add, self.splits[0]
        for key, row in rows:
            if split_of:
                split = split_of[key]
            add_task(key)
            yield split, row

    # --- rows by format ---------------------------------------------------------------------------------------------

    def _rollout_rows(self) -> Iterator[tuple[tuple[int, int], bytes]]:
        is_sft, runs, chat_of = self.request.format == "sft", self._runs, self._chat_of
        to_sft, to_flat, other_fields = self._maker.sft, self._maker.flat, self._decoder.other_fields
        for entry in self._entries():
            number, record = entry.run, entry.record
            chat = chat_of(entry)
            if chat is None:
                continue
            key = number, record.task
            if is_sft:
                yield key, to_sft(chat, RolloutFacts(number, record.task, record.rollout, record.reward))
                continue
            labels = runs[number].labels
            label, note = labels.of(record.task, record.rollout) if labels else (None, None)
            yield key, to_flat(chat, entry, label, note, other_fields(record, entry.line))

    def _kto_rows(self) -> Iterator[tuple[tuple[int, int], bytes]]:
        threshold = self.request.threshold
        if threshold is None:
            yield from self._labelled_pairs()
            return
        for entry in self._entries():
            record = entry.record
            chat = self._chat_of(entry)
            if chat is not None:
                facts = RolloutFacts(entry.run, record.task, record.rollout, record.reward)
                is_desired = facts.reward >= threshold
                self._labels.add(is_desired)
                yield (facts.run, facts.task), self._maker.kto(chat, facts, label=is_desired)

    def _labelled_pairs(self) -> Iterator[tuple[tuple[int, int], bytes]]:
        """The rollouts of pairs, task by task; one that is better in one pair and worse in another has no label."""
        for key, pairs, chats in self._distinct_pairs():
            chosen, rejected = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
            self.index.left_out["both_better_and_worse"] += len(chosen & rejected)
            for position in sorted(chosen ^ rejected):
                yield key, self._maker.kto(chats[position], self._facts(position), label=position in chosen)

    def _pair_rows(self) -> Iterator[tuple[tuple[int, int], bytes]]:
        for key, pairs, chats in self._distinct_pairs():
            for chosen, rejected in pairs:
                facts = self._facts(chosen), self._facts(rejected)
                try:
                    yield key, self._maker.dpo(chats[chosen], chats[rejected], *facts)
                except NotChatError as error:
                    self.index.left_out[str(error)] += 1

    def _distinct_pairs(self) -> Iterator[tuple[tuple[int, int], list[tuple[int, int]], dict[int, Chat]]]:
        """The pairs of each task whose completions differ, and the chats of their rollouts."""
        index = self.index
        with _LinesAt(self._runs) as lines:
            for key, group in groupby(select_pairs(index, self.request.pairs), self._task_of_pair):
                pairs = list(group)
                members = sorted({position for pair in pairs for position in pair})
                read = ((position, self._read(lines.read(index, position))) for position in members)
                chats = {position: chat for position, chat in read if chat is not None}
                known = [pair for pair in pairs if chats.keys() >= {*pair}]
                digests = {position: chat.completion_digest for position, chat in chats.items()}
                distinct = [pair for pair in known if digests[pair[0]] != digests[pair[1]]]
                index.left_out["pair_with_same_completion"] += len(known) - len(distinct)
                yield key, distinct, chats

    def _task_of_pair(self, pair: tuple[int, int]) -> tuple[int, int]:
        return self.index.run[pair[0]], self.index.task[pair[0]]

    def _task_rows(self) -> Iterator[tuple[tuple[int, int], bytes]]:
        with_prompt = self.request.target == "trl"
        for number, run in enumerate(self._runs):
            owed = {
                self.index.task[position] for position in self._select_positions() if self.index.run[position] == number
            }
            path = RunPaths(run.output).materialized_inputs
            if not path.exists():
                hint = "tasks are read from this file: export the run from the folder where it was collected"
                raise DataError("the run has no materialized inputs", where=str(path), next=hint)
            for _, line in numbered_lines(path):
                key = key_of_line(line) if line else None
                if key is None or key.task not in owed:
                    continue
                owed.discard(key.task)
                prompt = tools = None
                if with_prompt:
                    try:
                        prompt, tools = self._reader.prompt_of(line)
                    except NotChatError as error:
                        self.index.left_out[str(error)] += 1
                        continue
                yield (number, key.task), task_row(line, prompt, tools)

    # --- parts -------------------------------------------------------------------------------------------------------

    def _select_positions(self) -> Sequence[int]:
        if self.request.best_of is None:
            return range(len(self.index))
        return select_best(self.index, self.request.best_of, self.request.pairs.ties)

    def _entries(self) -> Iterator[Entry]:
        """The chosen rollouts, in the order of the runs and of their files."""
        if self._indexer is not None:
            yield from self._indexer.stream()
            return
        decode = self._decoder.decode if self._is_flat else decode_record
        wanted = iter(self._select_positions())
        position = next(wanted, None)
        for number, run in enumerate(self._runs):
            if position is None:
                return
            offset = 0
            for line in read_lines(run.records):
                if position is None or self.index.run[position] != number:
                    break
                if offset == self.index.offset[position]:
                    record = decode(line, run.records.path, 0)
                    yield Entry(position, number, record, line, is_truncated=is_truncated_record(record))
                    position = next(wanted, None)
                offset += len(line)

    def _facts(self, position: int) -> RolloutFacts:
        index = self.index
        run, task, rollout = index.run[position], index.task[position], index.rollout[position]
        return RolloutFacts(run, task, rollout, index.reward[position])

    def _chat_of(self, entry: Entry) -> Chat | None:
        chat = entry.chat
        if chat is None:
            return self._read(entry.record)
        self._check(chat)
        return chat

    def _read(self, record: Record) -> Chat | None:
        try:
            chat = self._reader.read(record)
        except NotChatError as error:
            self.index.left_out[str(error)] += 1
            return None
        self._check(chat)
        return chat

    def _check(self, chat: Chat) -> None:
        """Count what a chat lacks. Raises if the columns cannot hold it."""
        if chat.dropped_reasoning:
            self._reasoning_dropped += 1
        if self._is_typed and self._reader.has_parts and not self._style.escaped_content:
            raise _PartsFoundError

    # --- summary -----------------------------------------------------------------------------------------------------

    def manifest(self, files: Sequence[DataFile]) -> JsonObject:
        """`export.json`: origin, options, counts and digests. Paths of this machine are not in it."""
        index = self.index
        for file in files:
            self._rows[file.split] += file.rows
        counts = {
            "rollouts": index.read,
            "tasks": len(index.tasks_read),
            "rows": sum(self._rows.values()),
            "rows_by_split": {split: self._rows[split] for split in self.splits},
            "tasks_in_rows": len(self._tasks),
            "left_out": {reason: count for reason, count in sorted(index.left_out.items()) if count},
            "failed": dict(sorted(index.failed.items())),
            "reasoning_dropped": self._reasoning_dropped,
            "secrets_masked": self.scrubber.masked,
        }
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.request.output.resolve().name,
            "gymnast": __version__,
            "format": self.request.format,
            "options": _options(self.request),
            "runs": [_origin(run) for run in self._runs],
            "counts": counts,
            "files": [
                {name: getattr(file, name) for name in ("path", "split", "rows", "size_bytes", "sha256")}
                for file in files
            ],
        }

    def notes(self) -> list[str]:
        """What the user should know about the result."""
        notes = []
        for run in self._runs:
            manifest = read_manifest(RunPaths(run.output).manifest)
            if manifest is not None and manifest.counts.owed:
                notes.append(
                    f"{run.name}: {manifest.counts.owed} of {manifest.counts.requested} rollouts are still owed"
                )
        if self.request.threshold is not None and len(self._labels) == 1:
            all_of = "desired" if True in self._labels else "undesired"
            notes.append(f"all rows are {all_of}: KTO learns from both kinds, so choose another --threshold")
        notes += [f"the split '{split}' has no rows" for split in self.splits if not self._rows[split]]
        if self._reasoning_dropped:
            notes.append(f"reasoning was dropped from {self._reasoning_dropped} rollouts (--reasoning keeps it)")
        return notes


class _LinesAt:
    """Reads single lines of runs by offset and length, without a buffer around them."""

    def __init__(self, runs: Sequence[RunSource]) -> None:
        self._runs = runs
        self._streams: list[Any] = []

    def __enter__(self) -> Self:
        self._streams = [run.records.open() for run in self._runs]
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.close()

    def read(self, index: Index, position: int) -> Record:
        """The record at a position of the index."""
        raw = self._streams[index.run[position]].raw
        raw.seek(index.offset[position])
        data, missing = b"", index.length[position]
        while missing:
            part = raw.read(missing)
            if not part:
                break
            data, missing = data + part, missing - len(part)
        return decode_record(data, self._runs[index.run[position]].records.path, 0)


def _origin(run: RunSource) -> JsonObject:
    manifest = read_manifest(RunPaths(run.output).manifest)
    collected = datetime.fromtimestamp(manifest.created_at, UTC).date().isoformat() if manifest is not None else None
    return {
        "name": run.name,
        "id": manifest.run_id if manifest is not None else None,
        "state": str(manifest.state) if manifest is not None else None,
        "collected": collected,
        "gymnast": manifest.versions.get("gymnast") if manifest is not None else None,
        "input_digest": manifest.source.get("digest") if manifest is not None else None,
        "models": sorted({model for _, model in run.origins if model}),
        "agents": sorted({agent for agent, _ in run.origins if agent}),
        "size_bytes": run.size_bytes,
        "crc32": run.crc32,
    }


def _options(request: ExportRequest) -> JsonObject:
    filters = request.filters
    options: JsonObject = {
        "files": request.container,
        "for": request.layout.target,
        "where": filters.where.text if filters.where is not None else None,
        "labels": list(filters.by_label.wanted),
        "excluded_labels": list(filters.by_label.excluded),
        "include_truncated": filters.include_truncated,
        "include_masked": filters.include_masked,
        "max_length": filters.max_bytes,
        "dedup": filters.dedup,
        "best_of": request.best_of,
        "reasoning": request.reasoning,
        "splits": dict(request.splits),
        "seed": request.seed if request.splits else None,
    }
    if request.format in {"dpo", "kto"}:
        rules = request.pairs
        options |= {"threshold": request.threshold} if request.format == "kto" else {}
        options |= {"margin": rules.margin, "ties": rules.ties, "pairs": rules.pairs}
    return {name: value for name, value in options.items() if value not in (None, [], {}, False)}


def _read_earlier(request: ExportRequest) -> JsonObject | None:
    """The manifest of an export that the folder already has. Raises UserError if it has other files."""
    folder = request.output
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise UserError("the output is a file", where=str(path), next="choose a folder")
    path = folder / MANIFEST
    try:
        earlier: JsonObject = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        names = (
            sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
            if folder.exists()
            else []
        )
        if names and not request.overwrite:
            what = f"the folder is not empty: it has {', '.join(names[:4])}"
            raise UserError(what, where=str(folder), next="add --overwrite, or choose another folder") from None
        return None
    except (OSError, ValueError) as error:
        if request.overwrite:
            return None
        raise UserError(f"cannot read the earlier export: {error}", where=str(path), next="add --overwrite") from error
    return earlier


def _nothing_left(counts: JsonObject) -> UserError:
    failed = {f"failed ({kind})": count for kind, count in counts["failed"].items()}
    listed = ", ".join(f"{reason} {count}" for reason, count in (counts["left_out"] | failed).items())
    if not counts["left_out"]:
        what = "the run has no scored rollouts" + (f": {listed}" if listed else "")
        return UserError(what, next="see why: gymnast doctor RUN; then collect it again with --resume --retry-failed")
    reason = max(counts["left_out"], key=counts["left_out"].__getitem__)
    return UserError(f"no row is left to export: {listed}", next=_HINTS.get(reason, _NO_CHAT))
