"""Grades by execution: runs the reference and the answer in separate sandboxes and compares their results."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from gymnast.kit import JsonObject, Limits, Sandbox, precompile

from .queries import is_ordered
from .results import QueryOutput, same_result

_SANDBOX_MAIN: Final = Path(__file__).with_name("sandbox_main.py")
_MAX_ROWS: Final = 5000
_MAX_CHARACTERS: Final = 1 << 20
_MAX_CACHED: Final = 512
_MAX_CACHED_CHARACTERS: Final = 1 << 16

VARIANTS: Final[tuple[JsonObject, ...]] = ({}, {"without": 0}, {"without": 1})
"""The full database, without its even rows, and without its odd rows."""
REVERSED: Final[JsonObject] = {"reversed": True}
"""The full database, but unordered rows come in reverse."""

Status = Literal["match", "mismatch", "error", "timeout", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of running both queries. `inconclusive`: the row cannot be graded this way, whatever the answer."""

    status: Status
    detail: str | None = None


_VARIANT_TEXTS: Final = ("", " without its even rows", " without its odd rows", " when its rows come in another order")


class QueryRunner:
    """Runs queries and compares their results. Caches results of references: a task has many attempts."""

    def __init__(self, sandbox: Sandbox, limits: Limits, timeout_s: float, *, vary: bool) -> None:
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self._limits = replace(limits, wall_s=timeout_s, cpu_s=timeout_s, output_bytes=2 * _MAX_CHARACTERS)
        self._vary = vary
        self._references: OrderedDict[bytes, QueryOutput] = OrderedDict()

    async def compare(self, context: str, reference: str, answer: str) -> Comparison:
        """Whether the answer gives the same result as the reference, on the row's database and on parts of it."""
        ordered = is_ordered(reference)
        variants = self._variants(ordered=ordered)
        expected = await self._reference(context, reference, variants)
        reason = inconclusive_reason(expected)
        if reason is not None:
            return Comparison("inconclusive", reason)
        output = await self._run(context, answer, variants)
        if output.failed_at is not None:
            return Comparison("timeout" if output.failed_at == "timeout" else "error", output.error)
        return await asyncio.to_thread(compare_results, output, expected, ordered=ordered)

    def _variants(self, *, ordered: bool) -> list[JsonObject]:
        if not self._vary:
            return [VARIANTS[0]]
        return [*VARIANTS, REVERSED] if ordered else [*VARIANTS]

    async def _reference(self, context: str, sql: str, variants: list[JsonObject]) -> QueryOutput:
        key = hashlib.sha256(json.dumps([context, sql]).encode()).digest()
        cached = self._references.get(key)
        if cached is not None:
            self._references.move_to_end(key)
            return cached
        output = await self._run(context, sql, variants)
        if len(msgspec.json.encode(output)) <= _MAX_CACHED_CHARACTERS and output.failed_at != "timeout":
            self._references[key] = output
            if len(self._references) > _MAX_CACHED:
                self._references.popitem(last=False)
        return output

    async def _run(self, context: str, sql: str, variants: list[JsonObject]) -> QueryOutput:
        job = {
            "context": context,
            "sql": sql,
            "variants": variants,
            "most_rows": _MAX_ROWS,
            "most_characters": _MAX_CHARACTERS,
        }
        execution = await self._sandbox.run_python(
            precompile(_SANDBOX_MAIN), stdin=json.dumps(job).encode(), limits=self._limits
        )
        if execution.ending == "timeout":
            return QueryOutput(failed_at="timeout", error=f"the query ran for more than {self._timeout_s:g} s")
        try:
            return msgspec.json.decode(execution.stdout, type=QueryOutput)
        except msgspec.DecodeError:
            # A query that crashes SQLite or exhausts memory is wrong; it must not look like a failure of ours.
            return QueryOutput(
                failed_at="query",
                error=f"the query took its process down ({execution.ending}) {execution.stderr[-300:]}",
            )


def inconclusive_reason(reference: QueryOutput) -> str | None:
    """Why results would be inconclusive about an answer, or None."""
    if reference.failed_at is not None:
        return f"the reference query cannot be run ({reference.failed_at}): {reference.error}"
    first = reference.results[0]
    if not reference.populated:
        return "sql_context puts no rows into its tables"
    if not first.rows and first.tables is None:
        return "the reference query returns nothing"
    return None


def compare_results(actual: QueryOutput, expected: QueryOutput, *, ordered: bool) -> Comparison:
    """Compare the results of the queries on each variant of the database."""
    first = expected.results[0]
    for number, (ours, theirs) in enumerate(zip(actual.results, expected.results, strict=True)):
        if number == len(VARIANTS) and not same_result(first, theirs, ordered=True):
            continue  # the reference does not order ties: an answer need not either
        if not same_result(ours, theirs, ordered=ordered):
            return Comparison("mismatch", f"the results differ on the row's database{_VARIANT_TEXTS[number]}")
    return Comparison("match")
