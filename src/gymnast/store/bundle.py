"""One redacted archive of a run, to attach to a bug report: enough to see what happened, nothing that is secret.

Prompts and answers stay out unless rollouts are asked for.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.store.excerpts import count_lines, first_and_last, head_and_tail, shortened
from gymnast.store.replacing import replaced
from gymnast.types.task import FAILURE_CLASS, FAILURE_TERMINAL, IDENTITY_KEYS, JUDGE_ERROR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gymnast.store.paths import RunPaths
    from gymnast.store.redact import Redactor
    from gymnast.types.json import JsonObject

_FAILURES: Final = 50
_HEAD_BYTES: Final = 32 << 10
_TAIL_BYTES: Final = 96 << 10
_MOST_LOGS: Final = 60
_LONGEST_TEXT: Final = 2000
_FAILURE_KEYS: Final = (
    *IDENTITY_KEYS,
    *(FAILURE_CLASS, FAILURE_TERMINAL, JUDGE_ERROR, "failure", "reward", "_ng_model_usage"),
)


@dataclass(frozen=True, slots=True)
class BundleRequest:
    """What goes in."""

    paths: RunPaths
    documents: Mapping[str, Any]
    """Further JSON documents by name: status, doctor's answer, versions, configuration."""
    logs: Sequence[Path] = ()
    """Further log files."""
    rollouts: int = 0
    """How many scored and failed rollouts go in whole."""
    max_bytes: int = 20 << 20
    """The archive's content at most, before it is compressed."""


@dataclass(slots=True)
class Bundle:
    """What went in, by name, and what did not."""

    entries: dict[str, bytes] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    room_bytes: int = 0

    def add(self, name: str, data: bytes) -> None:
        """Put a file in, unless there is no room left."""
        if len(data) > self.room_bytes:
            self.left_out.append(f"{name}: {len(data)} bytes, no room left")
            return
        self.room_bytes -= len(data)
        self.entries[name] = data

    @property
    def size_bytes(self) -> int:
        return sum(len(data) for data in self.entries.values())


def make_bundle(request: BundleRequest, redactor: Redactor) -> Bundle:
    """Gather and redact. What cannot be read is named instead."""
    bundle = Bundle(room_bytes=request.max_bytes)
    for name, document in request.documents.items():
        bundle.add(f"{name}.json", redactor.json(document))
    paths = request.paths
    bundle.add("files.json", redactor.json(_files(paths)))
    if paths.manifest.exists():
        _add_document(bundle, "manifest.json", paths.manifest, redactor)
    if paths.aggregate_metrics.exists():
        _add_document(bundle, "aggregate_metrics.json", paths.aggregate_metrics, redactor)
    if paths.failures.exists():
        _add_failures(bundle, paths.failures, redactor)
    for path in _logs(paths, request.logs, bundle):
        text = head_and_tail(path, head_bytes=_HEAD_BYTES, tail_bytes=_TAIL_BYTES)
        bundle.add(_log_name(path, bundle), redactor.text(text).encode())
    if request.rollouts:
        for name, path in (("rollouts", paths.output), ("failed_rollouts", paths.failures)):
            if path.exists():
                first, _, _ = first_and_last(path, request.rollouts)
                bundle.add(f"{name}.jsonl", _jsonl(first, redactor))
    bundle.entries["left_out.json"] = redactor.json(bundle.left_out)
    return bundle


def write_bundle(path: Path, bundle: Bundle, folder: str) -> None:
    """The archive, the same for the same content."""
    with replaced(path) as out, gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed:  # noqa: SIM117 - one shape
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, data in bundle.entries.items():
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mode = len(data), 0o644
                archive.addfile(entry, io.BytesIO(data))


def _files(paths: RunPaths) -> list[JsonObject]:
    """The run's files with sizes, times and lines."""
    known = [*paths.existing(), *sorted(paths.output.parent.glob(f"{paths.output.stem}_*.json*"))]
    listed = []
    for path in dict.fromkeys(known):
        facts = path.stat()
        lines = count_lines(path) if path.suffix == ".jsonl" else None
        listed.append({"name": path.name, "size_bytes": facts.st_size, "changed_at": facts.st_mtime, "lines": lines})
    return listed


def _add_document(bundle: Bundle, name: str, path: Path, redactor: Redactor) -> None:
    try:
        bundle.add(name, redactor.json(orjson.loads(path.read_bytes())))
    except (OSError, orjson.JSONDecodeError) as error:
        bundle.left_out.append(f"{name}: cannot be read ({error})")


def _add_failures(bundle: Bundle, path: Path, redactor: Redactor) -> None:
    first, last, count = first_and_last(path, _FAILURES)
    kept: list[JsonObject] = [{str(key): row[key] for key in _FAILURE_KEYS if key in row} for row in [*first, *last]]
    bundle.add("failures.jsonl", _jsonl(kept, redactor))
    if count > len(kept):
        bundle.left_out.append(f"failures.jsonl: {count - len(kept)} of {count} failures, from the middle")


def _jsonl(rows: Sequence[JsonObject], redactor: Redactor) -> bytes:
    return b"".join(
        orjson.dumps(redactor.value(shortened(row, _LONGEST_TEXT)), option=orjson.OPT_NON_STR_KEYS) + b"\n"
        for row in rows
    )


def _logs(paths: RunPaths, more: Sequence[Path], bundle: Bundle) -> list[Path]:
    """The logs of the run and those named, the latest first where there are too many."""
    found = [path for path in paths.logs.rglob("*") if path.is_file()] if paths.logs.is_dir() else []
    for path in more:
        found += [inner for inner in path.rglob("*") if inner.is_file()] if path.is_dir() else [path]
    found = sorted(dict.fromkeys(found), key=lambda path: -path.stat().st_mtime)
    if len(found) > _MOST_LOGS:
        bundle.left_out.append(f"logs: the {len(found) - _MOST_LOGS} oldest of {len(found)}")
    return found[:_MOST_LOGS]


def _log_name(path: Path, bundle: Bundle) -> str:
    name, number = f"logs/{path.name}", 2
    while name in bundle.entries:
        name, number = f"logs/{path.stem}-{number}{path.suffix}", number + 1
    return name
