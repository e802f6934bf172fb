"""Metrics files: compared with what is there before they are written, so that a change of a dataset is noticed."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymnast.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gymnast.types.json import JsonObject


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """A metrics file to be: where, what, and how it differs from the one that is there."""

    path: Path
    content: JsonObject
    differences: tuple[str, ...] = ()
    is_current: bool = False
    """The file that is there says the same and can stay."""

    @property
    def conflict_path(self) -> Path:
        return self.path.with_name(self.path.stem + "_conflict.json")

    @property
    def text(self) -> bytes:
        return json.dumps(self.content, indent=4).encode() + b"\n"


def compared(path: Path, content: JsonObject, *, existing: Path | None = None) -> MetricsFile:
    """A metrics file, compared with the existing one (at `path`, or elsewhere for a dataset that is shipped)."""
    old_path = existing if existing is not None and not path.exists() else path
    try:
        old: Any = json.loads(old_path.read_bytes())
    except FileNotFoundError:
        return MetricsFile(path, content)
    except (OSError, ValueError) as error:
        raise DataError(
            f"the metrics file cannot be read: {error}", where=str(old_path), next="restore it, or delete it"
        ) from error
    found = tuple(differences(old, content))
    return MetricsFile(path, content, found, is_current=not found and old.keys() == content.keys())


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """How new metrics differ from old ones. Keys may come anew, not go; numbers may differ by rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            inner = f"{where}.{key}" if where else key
            if key not in new:
                yield f"{inner} is gone"
            else:
                yield from differences(value, new[key], inner)
    elif not _same(old, new):
        yield f"{where or 'the content'} was {_shown(old)} and is {_shown(new)}"


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return Counter(map(_canonical, old)) == Counter(map(_canonical, new))
    if _is_number(old) and _is_number(new):
        return math.isclose(old, new, rel_tol=0, abs_tol=5e-3 if max(abs(old), abs(new)) >= 1 else 5e-4)
    return type(old) is type(new) and bool(old == new)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"
