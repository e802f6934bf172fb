"""What changed between a run and the command that wants to go on with it: rows, settings, code. Exact, and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.errors import DataError
from gymnast.store.keys import key_of_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.rollouts.plan import Planner
    from gymnast.types.task import RolloutKey

_SHOWN: Final = 5
_ABSENT: Final = object()


@dataclass(slots=True)
class PlanChange:
    """How a new plan differs from the one on disk."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        return not (self.added or self.removed or self.changed)

    @property
    def is_extension(self) -> bool:
        """Everything that was planned still is, and there is more."""
        return self.added > 0 and not (self.removed or self.changed)

    def words(self) -> list[str]:
        """The difference for people."""
        parts = [f"{count} rollouts {what}" for count, what in self._counts() if count]
        return [", ".join(parts), *self.examples] if parts else []

    def _counts(self) -> Iterator[tuple[int, str]]:
        yield self.added, "added"
        yield self.removed, "no longer there"
        yield self.changed, "changed"


def compare_plan(materialized: Path, planner: Planner) -> PlanChange:
    """Plan again and compare with the materialized inputs on disk; equal bytes need no parsing."""
    with materialized.open("rb", buffering=1 << 20) as old:
        same = all(old.read(len(chunk)) == chunk for chunk in planner.chunks()) and not old.read(1)
    return PlanChange() if same else PlanChange(changed=-1)


def plan_difference(materialized: Path, planner: Planner) -> PlanChange:
    """The exact difference, row by row. Slower, and only needed when there is one."""
    offsets = _offsets(materialized)
    change = PlanChange()
    with materialized.open("rb") as old:
        for chunk in planner.chunks():
            for line in chunk.splitlines():
                key = _key(line, materialized)
                start = offsets.pop(key, None)
                if start is None:
                    change.added += 1
                    continue
                old.seek(start)
                before = old.readline().rstrip(b"\r\n")
                if before != line:
                    _note_change(change, key, before, line)
    change.removed = len(offsets)
    change.examples += [f"{key} is no longer planned" for key in list(offsets)[: _SHOWN - len(change.examples)]]
    return change


def differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[str]:
    """`key: old -> new` for every value that differs, at any depth."""
    found: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        name = f"{path}.{key}" if path else str(key)
        old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, name)
        elif old != new:
            found.append(f"{name}: {_shown(old)} -> {_shown(new)}")
    return found


def _note_change(change: PlanChange, key: RolloutKey, before: bytes, after: bytes) -> None:
    changed = differences(orjson.loads(before), orjson.loads(after))
    if changed:  # the same data written differently is no change
        change.changed += 1
        if len(change.examples) < _SHOWN:
            change.examples.append(f"{key} {'; '.join(changed[:3])}" + (" …" if len(changed) > 3 else ""))


def _offsets(path: Path) -> dict[RolloutKey, int]:
    found: dict[RolloutKey, int] = {}
    position = 0
    with path.open("rb", buffering=1 << 20) as stream:
        for raw in stream:
            found[_key(raw.rstrip(b"\r\n"), path)] = position
            position += len(raw)
    return found


def _key(line: bytes, path: Path) -> RolloutKey:
    key = key_of_line(line)
    if key is None:
        raise DataError("a materialized input has no task and rollout index", where=str(path))
    return key


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "(absent)"
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= 60 else text[:57] + "…"
