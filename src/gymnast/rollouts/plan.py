"""The plan of a run: input lines expanded into materialized inputs, one for each rollout, streamed to a file.

All bad rows are found before anything is spent. A task is parsed, validated and serialized once; its repeats differ
only in two numbers, which are spliced in.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.errors import DataError, UserError, suggest
from gymnast.rollouts.param_problems import describe_bad_params
from gymnast.rollouts.row_map import ANSWER_FIELDS, name_fields
from gymnast.store.atomic import make_folders, sync_folder
from gymnast.store.row_files import describe_bad_json, read_lines
from gymnast.types.encoding import find_big_integer
from gymnast.types.task import (
    AGENT_REF,
    PARAMS,
    ROLLOUT_INDEX,
    SKILLS_REF,
    TASK_INDEX,
    TASK_SOURCE,
    RolloutKey,
    agent_name_of,
)
from gymnast.wire.validate import InvalidBody, validate_params

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from gymnast.rollouts.prompt import PromptTemplate
    from gymnast.rollouts.row_fit import RowCheck
    from gymnast.rollouts.row_map import RowMap
    from gymnast.types.json import JsonObject

_MAX_SHOWN: Final = 20
_MAX_LINES: Final = 5
_PROMPTS: Final = ("prompt", "question", "problem", "messages", "input", "instruction", "query", "text")
_NO_AGENT: Final = f"the row names no agent ('{AGENT_REF}'), and neither --environment nor --agent was set"
DEFAULT_REPEATS: Final = "_default"
DEFAULT_AGENT: Final = "_default"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How input rows become rollouts."""

    agent: str | None = None
    """Runs the rows that name no agent."""
    only_agent: str | None = None
    """Runs the rows that name neither an agent nor a task source, where no `agent` is chosen."""
    agent_renames: Mapping[str, str] = field(default_factory=dict)
    """The agents that run the rows of others, by the names in rows."""
    agent_map: Mapping[str, str] = field(default_factory=dict)
    """The agents that run rows, by the agent or the task source that rows name, with an optional `_default`."""
    task_agents: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The agents that can run the rows of a task source."""
    repeats: int | Mapping[str, int] = 1
    """Rollouts per row, or per row of each agent or task source with an optional `_default`."""
    limit: int | None = None
    """Maximum number of input lines to read."""
    add_seed: bool = False
    """Give each repeat its index as the sampling seed."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Override values in each row's responses_create_params."""
    deep_merge: bool = True
    """Merge nested params instead of replacing them."""
    row_map: RowMap | None = None
    """Copies fields of a row to other names, before anything else."""
    row_check: RowCheck | None = None
    """Finds rows that do not fit their environment; used for new plans only."""
    template: PromptTemplate | None = None
    skills: JsonObject | None = None
    skip_bad_rows: bool = False
    """Plan the good rows and record the bad ones as failures, instead of refusing the input."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """An input line that cannot be run."""

    line: int
    task: int
    rollouts: range
    what: str
    starts_document: bool = False
    """The line is an opening bracket, as in a JSON document of several lines."""

    def store_keys(self) -> list[RolloutKey]:
        """Keys in the run store. Negative, so they never collide with those of good rows."""
        return [RolloutKey(-self.line, rollout) for rollout in self.rollouts]


@dataclass(slots=True)
class PlanSummary:
    """The counts and digests of a plan."""

    tasks: int = 0
    rollouts: int = 0
    """Rows of the plan, without rollouts of skipped bad rows."""
    size_bytes: int = 0
    crc32: int = 0
    source_bytes: int = 0
    source_digest: str = ""
    bad_rows: list[BadRow] = field(default_factory=list)
    tasks_by_agent: Counter[str] = field(default_factory=Counter)
    rollouts_by_agent: Counter[str] = field(default_factory=Counter)
    rows_with_tools: Counter[str] = field(default_factory=Counter)
    """Input rows that declare tools, by agent."""
    rows_without_tools_key: Counter[str] = field(default_factory=Counter)
    """Input rows that say nothing about tools, by agent."""
    warnings: list[str] = field(default_factory=list)

    @property
    def requested(self) -> int:
        """Rollouts of good and bad rows."""
        return self.rollouts + sum(len(row.rollouts) for row in self.bad_rows)


def write_plan(source: Path, target: Path, options: PlanOptions, known_agents: Collection[str] | None) -> PlanSummary:
    """Materialize `source` into `target`. If rows are bad, nothing is left behind and one error lists them.

    `known_agents` are the agents that can be called; None if only a remote server knows them.
    """
    partial = target.with_name(target.name + ".partial")
    planner = Planner(source, options, known_agents)
    try:
        make_folders(target.parent)
        with partial.open("wb", buffering=1 << 20) as out:
            for chunk in planner.chunks():
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise UserError(f"cannot write {target.name}: {error.strerror or error}", where=str(target)) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return planner.summary


class _BadRow(ValueError):  # noqa: N818 - collected, not raised to callers
    pass


class Planner:
    """One pass over the input that yields the plan in pieces; `summary` is complete after the last one."""

    def __init__(self, source: Path, options: PlanOptions, known_agents: Collection[str] | None) -> None:
        self._source = source
        self._options = options
        self._known = known_agents
        self._tasks: dict[bytes, int] = {}
        self._repeats_used: set[str] = set()
        self._next_rollout: defaultdict[int, int] = defaultdict(int)
        self._next_bad_rollout: defaultdict[int, int] = defaultdict(int)
        self._dropped: Counter[str] = Counter()
        self.summary = PlanSummary()

    def chunks(self) -> Iterator[bytes]:
        """The plan's lines, those of one input line at a time. Raises at the end if rows are bad and not skipped."""
        digest = hashlib.blake2b(digest_size=16)
        summary = self.summary
        for number, line in read_lines(self._source):
            if self._options.limit is not None and number > self._options.limit:
                break
            digest.update(line + b"\n")
            summary.source_bytes += len(line) + 1
            try:
                chunk = b"".join(self._plan_line(line))
            except _BadRow as error:
                self._note_bad_row(number, line, str(error))
                continue
            summary.crc32 = zlib.crc32(chunk, summary.crc32)
            summary.size_bytes += len(chunk)
            yield chunk
        summary.source_digest = digest.hexdigest()
        if not summary.rollouts and not summary.bad_rows:
            raise DataError("the input file has no rows", where=str(self._source))
        self._raise_if_bad()
        summary.tasks = len(self._next_rollout)
        self._warn()

    def _note_bad_row(self, number: int, line: bytes, what: str) -> None:
        """A bad row keeps its task index, so that others do not change theirs when it is fixed."""
        task = self._tasks.setdefault(line_digest(line), len(self._tasks))
        repeats = self._options.repeats
        count = repeats if isinstance(repeats, int) else repeats.get(DEFAULT_REPEATS, 1)
        first = self._next_bad_rollout[task]
        self._next_bad_rollout[task] += count
        self.summary.bad_rows.append(
            BadRow(number, task, range(first, first + count), what, line.strip() in {b"{", b"["})
        )

    def _raise_if_bad(self) -> None:
        bad = self.summary.bad_rows
        if not bad or (self._options.skip_bad_rows and self.summary.rollouts):
            return
        groups = group_bad_rows(bad)
        shown = "\n".join(f"  {group}" for group in groups[:_MAX_SHOWN])
        more = f"\n  … and {len(groups) - _MAX_SHOWN} more" if len(groups) > _MAX_SHOWN else ""
        count = f"{len(bad)} bad row" + ("s" if len(bad) > 1 else "")
        raise DataError(
            f"the input has {count}; nothing was collected\n{shown}{more}",
            where=str(self._source),
            next=_next_step(bad),
        )

    def _plan_line(self, line: bytes) -> list[bytes]:
        row = self._parse_row(line)
        source = agent_name_of(row) or row.get(TASK_SOURCE)
        agent = self._route(row)
        row[PARAMS] = self._merge_params(row)
        check = self._options.row_check
        misfit = check.find_problem(agent, row) if check is not None else None
        if misfit is not None:
            raise _BadRow(misfit)
        if self._options.skills is not None:
            row[SKILLS_REF] = self._options.skills
        task = row.pop(TASK_INDEX, None)
        if task is None:
            task = self._tasks.setdefault(line_digest(line), len(self._tasks))
        elif not isinstance(task, int) or isinstance(task, bool):
            raise _BadRow(f"{TASK_INDEX} must be a whole number, not {task!r}")
        row.pop(ROLLOUT_INDEX, None)
        repeats = self._repeats(agent, source)
        first = self._next_rollout[task]
        write = self._write_seeded_lines if self._options.add_seed else _write_lines
        try:
            lines = write(row, task, range(first, first + repeats))
        except orjson.JSONEncodeError as error:  # readable but not writable: nested some 250 levels deep
            raise _BadRow(f"the row cannot be written: {error}") from error
        self._next_rollout[task] += repeats
        self.summary.rollouts += repeats
        self.summary.rollouts_by_agent[agent] += repeats
        self.summary.tasks_by_agent[agent] += first == 0
        self.summary.rows_with_tools[agent] += bool(row[PARAMS].get("tools"))
        self.summary.rows_without_tools_key[agent] += "tools" not in row[PARAMS]
        return lines

    def _parse_row(self, line: bytes) -> JsonObject:
        row = _decode_row(line)
        if self._options.row_map is not None:
            try:
                row = self._options.row_map.apply(row)
            except ValueError as error:
                raise _BadRow(str(error)) from error
        if not isinstance(row.get(PARAMS, {}), dict):
            raise _BadRow(f"'{PARAMS}' is not an object")
        if self._options.template is not None:
            try:
                return self._options.template.apply(row)
            except ValueError as error:
                raise _BadRow(str(error)) from error
        if PARAMS not in row:
            raise _BadRow(missing_params(row))
        return {**row}

    def _route(self, row: JsonObject) -> str:
        name = self._find_in_map(row)
        if name is not None:
            row[AGENT_REF] = {**(row.get(AGENT_REF) or {}), "name": name}
        elif AGENT_REF not in row and (default := self._default_agent(row)) is not None:
            row[AGENT_REF] = {"name": default}
        name = agent_name_of(row)
        if name is not None and name in self._options.agent_renames:
            name = self._options.agent_renames[name]
            row[AGENT_REF] = {**row[AGENT_REF], "name": name}
        if name is None:
            raise _BadRow(_NO_AGENT)
        if self._known is not None and name not in self._known:
            hint = suggest(name, self._known)
            raise _BadRow(f"the agent '{name}' is not configured" + (f"; {hint}" if hint else ""))
        return name

    def _find_in_map(self, row: JsonObject) -> str | None:
        """The agent that `agent_map` has for the row."""
        agents, source = self._options.agent_map, row.get(TASK_SOURCE)
        names = (agent_name_of(row), source, DEFAULT_AGENT)
        return next((agents[name] for name in names if isinstance(name, str) and name in agents), None)

    def _default_agent(self, row: JsonObject) -> str | None:
        """The agent of a row that names none."""
        options, source = self._options, row.get(TASK_SOURCE)
        if options.agent is not None:
            return options.agent
        # Without a configuration, only a remote server knows which agent runs the tasks of a source.
        return self._find_agent(source) if isinstance(source, str) and options.task_agents else options.only_agent

    def _find_agent(self, source: str) -> str:
        agents = self._options.task_agents.get(source)
        if agents is None:
            hint = suggest(source, self._options.task_agents)
            raise _BadRow(f"the task source '{source}' is not configured" + (f"; {hint}" if hint else ""))
        if len(agents) != 1:
            several = f"several agents use '{source}' ({', '.join(agents)})" if agents else f"no agent uses '{source}'"
            raise _BadRow(f"{several}; choose the agent of the row with --agent, or agent_map.{source}=AGENT")
        return agents[0]

    def _merge_params(self, row: JsonObject) -> JsonObject:
        own, overrides = row[PARAMS], self._options.params
        if not overrides:
            merged: JsonObject = own
        elif self._options.deep_merge:
            merged = _deep_merge(own, overrides)
        else:
            merged = {**own, **overrides}
            self._dropped.update(_dropped_keys(own, overrides))
        try:
            validate_params(merged, loc=(PARAMS,))
        except InvalidBody as error:
            raise _BadRow(describe_bad_params(error, merged)) from error
        return merged

    def _repeats(self, agent: str, source: Any) -> int:
        """The rollouts of a row that `agent` runs and whose data names `source`."""
        repeats = self._options.repeats
        if isinstance(repeats, int):
            return repeats
        names = (agent, source) if isinstance(source, str) else (agent,)
        name = next((name for name in names if name in repeats), DEFAULT_REPEATS)
        if name not in repeats:
            raise _BadRow(f"num_repeats has no entry for the agent '{agent}' and no '{DEFAULT_REPEATS}'")
        self._repeats_used.add(name)
        return repeats[name]

    def _write_seeded_lines(self, row: JsonObject, task: int, rollouts: range) -> list[bytes]:
        return [
            line
            for rollout in rollouts
            for line in _write_lines(
                {**row, PARAMS: _with_seed(row[PARAMS], rollout)}, task, range(rollout, rollout + 1)
            )
        ]

    def _warn(self) -> None:
        if self._options.row_check is not None:
            self.summary.warnings += self._options.row_check.warnings()
        repeats = self._options.repeats
        if not isinstance(repeats, int):
            unused = sorted(set(repeats) - self._repeats_used - {DEFAULT_REPEATS})
            if unused:
                self.summary.warnings.append(f"num_repeats names agents that no row uses: {', '.join(unused)}")
        for key, count in self._dropped.most_common(10):
            self.summary.warnings.append(
                f"the override of responses_create_params.{key.split('.')[0]} replaces the whole value: "
                f"'{key}' was dropped from {count} rows"
            )


def _next_step(bad: list[BadRow]) -> str:
    if all(row.what == _NO_AGENT for row in bad):
        return "pass the environment: -e NAME (gymnast env list), or an agent: -a NAME"
    if bad[0].line == 1 and bad[0].starts_document:
        return "the file is one JSON document: put its objects into an array and call it .json, or write one a line"
    return "fix them, or continue without them: --skip-bad-rows"


def group_bad_rows(rows: list[BadRow]) -> list[str]:
    """What is wrong with rows, each kind once with its lines."""
    lines: dict[str, list[int]] = {}
    for row in rows:
        lines.setdefault(row.what, []).append(row.line)
    return [f"{_name_lines(numbers)}: {what}" for what, numbers in lines.items()]


def _name_lines(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    shown = ", ".join(map(str, numbers[:_MAX_LINES]))
    return f"lines {shown}" + (f" and {len(numbers) - _MAX_LINES} more" if len(numbers) > _MAX_LINES else "")


def missing_params(row: JsonObject) -> str:
    """Says how a row without an input gets one."""
    texts = [name for name, value in row.items() if isinstance(value, str) and name not in ANSWER_FIELDS]
    named = (name for name in _PROMPTS if isinstance(row.get(name), (str, list)))
    likely = next(named, texts[0] if texts else "FIELD")
    prompt = "" if isinstance(row.get(likely), list) else f", or write a prompt: --prompt '{{{likely}}}'"
    return f"the row has no '{PARAMS}': map its input with --map input={likely}{prompt} (fields: {name_fields(row)})"


def line_digest(line: bytes) -> bytes:
    """Identifies a line without keeping its text in memory: identical lines are one task."""
    return hashlib.blake2b(line, digest_size=16).digest()


def _decode_row(line: bytes) -> JsonObject:
    if not line.strip():
        raise _BadRow("the line is blank")
    try:
        row: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _BadRow(describe_bad_json(line, error)) from error
    if (digits := find_big_integer(line)) is not None:
        raise _BadRow(f"the integer {digits[:40]} exceeds 64 bits: write it as text")
    if not isinstance(row, dict):
        raise _BadRow("the row is not a JSON object")
    return row


def _write_lines(row: JsonObject, task: int, rollouts: range) -> list[bytes]:
    """One line per rollout; only the numbers at the end differ."""
    body = orjson.dumps(row)[:-1]
    tail = b',"%b":%d,"%b":%%d}\n' % (TASK_INDEX.encode(), task, ROLLOUT_INDEX.encode())
    return [b"%b%b" % (body, tail % rollout) for rollout in rollouts]


def _with_seed(params: JsonObject, seed: int) -> JsonObject:
    metadata = dict(params.get("metadata") or {})
    try:
        extra = orjson.loads(metadata.get("extra_body") or "{}")
    except orjson.JSONDecodeError as error:
        raise _BadRow(f"metadata.extra_body is not JSON text: {error.msg}") from error
    if not isinstance(extra, dict):
        raise _BadRow("metadata.extra_body is not the JSON text of an object")
    metadata["extra_body"] = json.dumps({**extra, "seed": seed})  # the text that NeMo Gym's collector writes
    return {**params, "metadata": metadata}


def _deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> JsonObject:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = _deep_merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _dropped_keys(base: Mapping[str, Any], over: Mapping[str, Any]) -> list[str]:
    """Nested keys that a shallow merge drops."""
    return [
        f"{key}.{inner}"
        for key, value in over.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
        for inner in base[key]
        if inner not in value
    ]
