"""Grading by running: the reference and the answer, each in a sandbox run of its own, their results compared here."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from gymnast.hub.resources_servers.text_to_sql.queries import is_ordered
from gymnast.hub.resources_servers.text_to_sql.results import Answer, same_result
from gymnast.kit.sandbox.interface import Limits, Sandbox
from gymnast.kit.shipped import shipped
from gymnast.types.json import JsonObject

_IN_JAIL: Final = Path(__file__).with_name("in_jail.py")
_MOST_ROWS: Final = 5000
_MOST_CHARACTERS: Final = 1 << 20
_REMEMBERED: Final = 512
_REMEMBERED_CHARACTERS: Final = 1 << 16

VARIANTS: Final[tuple[JsonObject, ...]] = ({}, {"without": 0}, {"without": 1})
"""The database as it is, without its rows of even, and without those of odd number."""
REVERSED: Final[JsonObject] = {"reversed": True}
"""The database as it is, but rows that no query puts in order come the other way round."""

Status = Literal["match", "mismatch", "error", "timeout", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What running both queries showed. `inconclusive`: the row cannot be graded this way, whatever the answer."""

    status: Status
    detail: str | None = None


_WHERE: Final = ("", " without its even rows", " without its odd rows", " when its rows come in another order")


class Executor:
    """Runs queries and compares what they give. Results of references are remembered: a task has many attempts."""

    def __init__(self, sandbox: Sandbox, limits: Limits, timeout_s: float, *, vary: bool) -> None:
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self._limits = replace(limits, wall_s=timeout_s, cpu_s=timeout_s, output_bytes=2 * _MOST_CHARACTERS)
        self._vary = vary
        self._references: OrderedDict[bytes, Answer] = OrderedDict()

    async def compare(self, context: str, reference: str, answer: str) -> Finding:
        """Whether the answer gives what the reference gives, on the row's database and on parts of it."""
        ordered = is_ordered(reference)
        variants = self._variants(ordered=ordered)
        wanted = await self._reference(context, reference, variants)
        reason = why_inconclusive(wanted)
        if reason is not None:
            return Finding("inconclusive", reason)
        found = await self._run(context, answer, variants)
        if found.failed_at is not None:
            return Finding("timeout" if found.failed_at == "timeout" else "error", found.error)
        return await asyncio.to_thread(judge_results, found, wanted, ordered=ordered)

    def _variants(self, *, ordered: bool) -> list[JsonObject]:
        if not self._vary:
            return [VARIANTS[0]]
        return [*VARIANTS, REVERSED] if ordered else [*VARIANTS]

    async def _reference(self, context: str, sql: str, variants: list[JsonObject]) -> Answer:
        key = hashlib.sha256(json.dumps([context, sql]).encode()).digest()
        known = self._references.get(key)
        if known is not None:
            self._references.move_to_end(key)
            return known
        answer = await self._run(context, sql, variants)
        if len(msgspec.json.encode(answer)) <= _REMEMBERED_CHARACTERS and answer.failed_at != "timeout":
            self._references[key] = answer
            if len(self._references) > _REMEMBERED:
                self._references.popitem(last=False)
        return answer

    async def _run(self, context: str, sql: str, variants: list[JsonObject]) -> Answer:
        job = {
            "context": context,
            "sql": sql,
            "variants": variants,
            "most_rows": _MOST_ROWS,
            "most_characters": _MOST_CHARACTERS,
        }
        done = await self._sandbox.run_python(shipped(_IN_JAIL), stdin=json.dumps(job).encode(), limits=self._limits)
        if done.ending == "timeout":
            return Answer(failed_at="timeout", error=f"the query ran for more than {self._timeout_s:g} s")
        try:
            return msgspec.json.decode(done.stdout, type=Answer)
        except msgspec.DecodeError:
            # a query that takes SQLite down, or all the memory, fails; it must not look like a failure of ours
            return Answer(
                failed_at="query", error=f"the query took its process down ({done.ending}) {done.stderr[-300:]}"
            )


def why_inconclusive(reference: Answer) -> str | None:
    """Why results would say nothing about an answer, or None if they do."""
    if reference.failed_at is not None:
        return f"the reference query cannot be run ({reference.failed_at}): {reference.error}"
    first = reference.results[0]
    if not reference.populated:
        return "sql_context puts no rows into its tables"
    if not first.rows and first.tables is None:
        return "the reference query returns nothing"
    return None


def judge_results(found: Answer, wanted: Answer, *, ordered: bool) -> Finding:
    """Compare what the queries gave on each variant of the database."""
    first = wanted.results[0]
    for number, (ours, theirs) in enumerate(zip(found.results, wanted.results, strict=True)):
        if number == len(VARIANTS) and not same_result(first, theirs, ordered=True):
            continue  # the reference leaves ties in the order they come in: nothing to hold against an answer
        if not same_result(ours, theirs, ordered=ordered):
            return Finding("mismatch", f"the results differ on the row's database{_WHERE[number]}")
    return Finding("match")
