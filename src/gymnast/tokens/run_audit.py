"""The token audit of a whole run: every record's ledger is checked, and the figures are added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.errors import DataError, UserError
from gymnast.store.lines import numbered_lines
from gymnast.store.replacing import replaced
from gymnast.tokens.audit import as_json, audit, forks
from gymnast.tokens.export import BadLedger, read_ledger, with_bundles
from gymnast.types.task import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.tokens.audit import TokenAudit
    from gymnast.types.json import JsonObject

_MOST_NAMED: Final = 20


@dataclass(slots=True)
class RunAudit:
    """What the ledgers of a run show."""

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
    """Rollouts whose prompts an engine rendered otherwise than they were sampled; the first of them."""
    broken: list[str] = field(default_factory=list)
    """Rollouts whose ledger does not hold together, and why."""

    @property
    def is_exact(self) -> bool:
        """Every rollout has a ledger, all hold together, and nothing drifted."""
        return not (self.without_ledger or self.drift or self.broken)

    def add(self, key: str, found: TokenAudit) -> None:
        """One more rollout."""
        self.calls += found.calls
        self.ids_sent += found.ids_sent
        self.segments += len(found.segments)
        self.drift += found.drift
        self.tokens += found.tokens
        self.sampled += found.sources.get("sampled", 0)
        self.trained += sum(each.trained for each in found.segments)
        self.forks.update(forks(found))
        self.sources.update(found.sources)
        self.logprob_modes.update(found.logprob_modes)
        self.weight_versions.update(found.weight_versions)
        self.masked.update(found.masked)
        if found.drift and len(self.drifting) < _MOST_NAMED:
            self.drifting.append(key)

    def as_json(self) -> JsonObject:
        """The audit as data."""
        names = [name for name in self.__slots__ if name not in {"sampled", "masked"}]
        share = sum(self.masked.values()) / self.sampled if self.sampled else 0.0
        said = {name: dict(value) if isinstance(value := getattr(self, name), Counter) else value for name in names}
        return {"exact": self.is_exact, **said, "masked": dict(self.masked), "masked_share": share}


def audits(path: Path) -> Iterator[tuple[str, TokenAudit | BadLedger | None]]:
    """The audit of each record of a run: None where there is no ledger, the error where it is broken."""
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
    """The audit of a run's output file."""
    total = RunAudit()
    for key, found in audits(path):
        total.rollouts += 1
        if found is None:
            total.without_ledger += 1
        elif isinstance(found, BadLedger):
            if len(total.broken) < _MOST_NAMED:
                total.broken.append(f"{key}: {found}")
        else:
            total.add(key, found)
    return total


def rollout_lines(path: Path) -> Iterator[bytes]:
    """The audit of each rollout as a line of JSON."""
    for key, found in audits(path):
        said: JsonObject = {"rollout": key}
        if isinstance(found, BadLedger):
            said |= {"exact": False, "error": str(found)}
        elif found is None:
            said |= {"exact": False, "error": "the record has no token ledger"}
        else:
            said |= as_json(found)
        yield orjson.dumps(said)


def export_run(path: Path, output: Path) -> int:
    """Write the records with whole prompts on their items, as NeMo Gym has them. How many records."""
    if output.resolve() == path.resolve():
        raise UserError("the export would replace the run it is made from", where=str(path), next="name another file")
    count = 0
    with replaced(output) as stream:
        for number, record in _records(path):
            try:
                stream.write(orjson.dumps(with_bundles(record)) + b"\n")
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
                next="finish the run with --resume, which repairs torn lines",
            ) from error
        if not isinstance(record, dict):
            raise DataError("not a record", where=f"{path} line {number}")
        yield number, record
