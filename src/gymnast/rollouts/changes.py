"""What changed between a run and the command that resumes it: rows and settings, exactly and readably."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.store.keys import require_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gymnast.rollouts.plan import Planner
    from gymnast.types.task import RolloutKey

_MAX_EXAMPLES: Final = 5
_ABSENT: Final = object()


@dataclass(slots=True)
class PlanChange:
    """How a new plan differs from the one on disk."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.changed)

    @property
    def is_extension(self) -> bool:
        """Everything that was planned is still planned, and there is more."""
        return self.added > 0 and not (self.removed or self.changed)

    def describe(self) -> list[str]:
        """The difference as lines for people."""
        parts = [f"{count} rollouts {what}" for count, what in self._counts() if count]
        return [", ".join(parts), *self.examples] if parts else []

    def _counts(self) -> Iterator[tuple[int, str]]:
        yield self.added, "added"
        yield self.removed, "removed"
        yield self.changed, "changed"


def compare_plan(materialized: Path, planner: Planner) -> PlanChange:
    """Plan again and compare with the materialized inputs on disk, without parsing. Unequal: `changed` is -1."""
    with materialized.open("rb", buffering=1 << 20) as old:
        same = all(old.read(len(chunk)) == chunk for chunk in planner.chunks()) and not old.read(1)
    return PlanChange() if same else PlanChange(changed=-1)


def diff_plan(materialized: Path, planner: Planner) -> PlanChange:
    """The exact difference, row by row. Slower, and only needed if there is one."""
    offsets = _offsets(materialized)
    change = PlanChange()
    with materialized.open("rb") as old:
        for chunk in planner.chunks():
            for line in chunk.splitlines():
                key = require_key(line, materialized)
                start = offsets.pop(key, None)
                if start is None:
                    change.added += 1
                    continue
                old.seek(start)
                before = old.readline().rstrip(b"\r\n")
                if before != line:
                    _note_change(change, key, before, line)
    change.removed = len(offsets)
    change.examples += [f"{key} is no longer planned" for key in list(offsets)[: _MAX_EXAMPLES - len(change.examples)]]
    return change


def diff_values(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[str]:
    """`key: old -> new` for every value that differs, at any depth."""
    lines: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        name = f"{path}.{key}" if path else str(key)
        old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            lines += diff_values(old, new, name)
        elif old != new:
            lines.append(f"{name}: {_shorten(old)} -> {_shorten(new)}")
    return lines


def _note_change(change: PlanChange, key: RolloutKey, before: bytes, after: bytes) -> None:
    changed = diff_values(orjson.loads(before), orjson.loads(after))
    if changed:  # the same data written differently is not a change
        change.changed += 1
        if len(change.examples) < _MAX_EXAMPLES:
            change.examples.append(f"{key} {'; '.join(changed[:3])}" + (" …" if len(changed) > 3 else ""))


def _offsets(path: Path) -> dict[RolloutKey, int]:
    offsets: dict[RolloutKey, int] = {}
    position = 0
    with path.open("rb", buffering=1 << 20) as stream:
        for raw in stream:
            offsets[require_key(raw.rstrip(b"\r\n"), path)] = position
            position += len(raw)
    return offsets


def _shorten(value: Any) -> str:
    if value is _ABSENT:
        return "(absent)"
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= 60 else text[:57] + "…"
