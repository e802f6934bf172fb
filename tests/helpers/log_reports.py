"""What doctor says about a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnast.doctor.examine import examine, find_target

if TYPE_CHECKING:
    from pathlib import Path


def report(folder: Path, log: str) -> Any:
    """The diagnosis of a log, whose file has a name that says nothing."""
    path = folder / "run.log"
    path.write_bytes(log.encode())
    return examine(find_target(path))


def first(folder: Path, log: str) -> dict[str, Any]:
    """The first finding, as JSON has it."""
    finding: dict[str, Any] = report(folder, log).as_json()["findings"][0]
    return finding
