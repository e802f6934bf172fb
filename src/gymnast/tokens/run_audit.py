"""The token audit of a run: checks every record's ledger and adds up the numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.errors import DataError, UserError
from gymnast.store.atomic import atomic_output
from gymnast.store.lines import numbered_lines
from gymnast.tokens.audit import as_json, audit, count_forks
from gymnast.tokens.export import BadLedger, add_training_fields, read_ledger
from gymnast.types.task import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.tokens.audit import TokenAudit
    from gymnast.types.json import JsonObject

_MAX_NAMED: Final = 20


@dataclass(slots=True)
class RunAudit:
    """The sums over all `TokenAudit`s of a run, one field per number, and the first rollouts with problems."""

    rollouts: int = 0
    without_ledger: int = 0
    calls: int = 0
    ids_sent: int = 0
    segments: int = 0
    drift: int = 0
    tokens: int = 0
    sampled: int = 0
    trained: int = 0
    forks: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    logprob_modes: Counter[str] = field(default_factory=Counter)
    weight_versions: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)
    drifting: list[str] = field(default_factory=list)
    """The first rollouts with drift: prompts rendered differently from the tokens sampled."""
    broken: list[str] = field(default_factory=list)
    """The first rollouts with an inconsistent ledger, and why."""

    @property
    def is_exact(self) -> bool:
        """Whether every rollout has a consistent ledger without drift."""
        return not (self.without_ledger or self.drift or self.broken)

    def add(self, key: str, result: TokenAudit) -> None:
        self.calls += result.calls
        self.ids_sent += result.ids_sent
        self.segments += len(result.segments)
        self.drift += result.drift
        self.tokens += result.tokens
        self.sampled += result.sources.get("sampled", 0)
        self.trained += sum(segment.trained for segment in result.segments)
        self.forks.update(count_forks(result))
        self.sources.update(result.sources)
        self.logprob_modes.update(result.logprob_modes)
        self.weight_versions.update(result.weight_versions)
        self.masked.update(result.masked)
        if result.drift and len(self.drifting) < _MAX_NAMED:
            self.drifting.append(key)

    def as_json(self) -> JsonObject:
        names = [name for name in self.__slots__ if name not in {"sampled", "masked"}]
        share = sum(self.masked.values()) / self.sampled if self.sampled else 0.0
        sums = {name: dict(value) if isinstance(value := getattr(self, name), Counter) else value for name in names}
        return {"exact": self.is_exact, **sums, "masked": dict(self.masked), "masked_share": share}


def iter_audits(path: Path) -> Iterator[tuple[str, TokenAudit | BadLedger | None]]:
    """The audit of each record: None without a ledger, the error if the ledger is inconsistent."""
    for number, record in _records(path):
        key = key_of(record)
        name = str(key) if key is not None else f"line {number}"
        try:
            ledger = read_ledger(record)
        except BadLedger as error:
            yield name, error
            continue
        yield name, audit(ledger) if ledger is not None else None


def audit_run(path: Path) -> RunAudit:
    """Audit a run's output file."""
    total = RunAudit()
    for key, result in iter_audits(path):
        total.rollouts += 1
        if result is None:
            total.without_ledger += 1
        elif isinstance(result, BadLedger):
            if len(total.broken) < _MAX_NAMED:
                total.broken.append(f"{key}: {result}")
        else:
            total.add(key, result)
    return total


def iter_audit_lines(path: Path) -> Iterator[bytes]:
    """The audit of each rollout, as a line of JSON."""
    for key, result in iter_audits(path):
        line: JsonObject = {"rollout": key}
        if isinstance(result, BadLedger):
            line |= {"exact": False, "error": str(result)}
        elif result is None:
            line |= {"exact": False, "error": "the record has no token ledger"}
        else:
            line |= as_json(result)
        yield orjson.dumps(line)


def export_run(path: Path, output: Path) -> int:
    """Write the records with whole prompts on their items, as NeMo Gym does. Returns the number of records."""
    if output.resolve() == path.resolve():
        raise UserError("the export would overwrite its own input", where=str(path), next="choose another file")
    count = 0
    with atomic_output(output) as stream:
        for number, record in _records(path):
            try:
                stream.write(orjson.dumps(add_training_fields(record)) + b"\n")
            except BadLedger as error:
                raise DataError(str(error), where=f"{path} line {number}") from error
            count += 1
    return count


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in numbered_lines(path):
        if not line:
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise DataError(
                f"not a JSON record: {error}",
                where=f"{path} line {number}",
                next="finish the run with --resume, which repairs truncated lines",
            ) from error
        if not isinstance(record, dict):
            raise DataError("not a record", where=f"{path} line {number}")
        yield number, record
