"""Metrics files, compared with the existing file before writing, so that a changed dataset is noticed."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymnast.data.row import truncate
from gymnast.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """A metrics file to write, and how it differs from the existing one."""

    path: Path
    content: JsonObject
    differences: tuple[str, ...] = ()
    is_current: bool = False
    """True if the existing file has the same content and can stay."""

    @property
    def conflict_path(self) -> Path:
        return self.path.with_name(self.path.stem + "_conflict.json")

    @property
    def text(self) -> bytes:
        return json.dumps(self.content, indent=4).encode() + b"\n"


def compare_with_existing(path: Path, content: JsonObject, *, existing: Path | None = None) -> MetricsFile:
    """The metrics file for `content`, compared with the one at `path`, else with `existing` (for builtin datasets)."""
    old_path = existing if existing is not None and not path.exists() else path
    try:
        old: Any = json.loads(old_path.read_bytes())
    except FileNotFoundError:
        return MetricsFile(path, content)
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot read the metrics file: {error}", where=str(old_path), next="restore or delete it"
        ) from error
    changes = tuple(differences(old, content))
    return MetricsFile(path, content, changes, is_current=not changes and old.keys() == content.keys())


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """How new metrics differ from old ones. Ignores added keys and rounding differences of numbers."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            inner = f"{where}.{key}" if where else key
            if key not in new:
                yield f"{inner} is missing"
            else:
                yield from differences(value, new[key], inner)
    elif not _same(old, new):
        yield f"{where or 'the content'} was {_preview(old)} and is {_preview(new)}"


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return Counter(map(_canonical, old)) == Counter(map(_canonical, new))
    if _is_number(old) and _is_number(new):
        return math.isclose(old, new, rel_tol=0, abs_tol=5e-3 if max(abs(old), abs(new)) >= 1 else 5e-4)
    return type(old) is type(new) and bool(old == new)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _preview(value: Any) -> str:
    """A value as the file has it: NaN and text that is not valid Unicode included."""
    return truncate(json.dumps(value), 60)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
