"""A redacted archive of a run for a bug report: enough to see what happened, without secrets.

Prompts and responses are left out unless rollouts are requested.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.store.atomic import atomic_output
from gymnast.types.task import FAILURE_CLASS, FAILURE_TERMINAL, IDENTITY_KEYS, JUDGE_ERROR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from gymnast.store.paths import RunPaths
    from gymnast.store.redact import Redactor
    from gymnast.types.json import JsonObject


_MAX_LINE: Final = 4000
_BLOCK: Final = 1 << 20
_MAX_FAILURES: Final = 50
_HEAD_BYTES: Final = 32 << 10
_TAIL_BYTES: Final = 96 << 10
_MAX_LOGS: Final = 60
_MAX_TEXT: Final = 2000
_FAILURE_KEYS: Final = (
    *IDENTITY_KEYS,
    *(FAILURE_CLASS, FAILURE_TERMINAL, JUDGE_ERROR, "failure", "reward", "_ng_model_usage"),
)


@dataclass(frozen=True, slots=True)
class BundleRequest:
    """What to include."""

    paths: RunPaths
    documents: Mapping[str, Any]
    """Further JSON documents by name: status, findings, versions, configuration."""
    logs: Sequence[Path] = ()
    """Further log files."""
    rollouts: int = 0
    """How many scored and failed rollouts are included completely."""
    max_bytes: int = 20 << 20
    """Maximum size of the content before compression."""


@dataclass(slots=True)
class Bundle:
    """What is included, by name, and what was left out."""

    entries: dict[str, bytes] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    room_bytes: int = 0

    def add(self, name: str, data: bytes) -> None:
        """Add a file if there is room."""
        if len(data) > self.room_bytes:
            self.left_out.append(f"{name}: {len(data)} bytes, no room left")
            return
        self.room_bytes -= len(data)
        self.entries[name] = data

    @property
    def size_bytes(self) -> int:
        return sum(len(data) for data in self.entries.values())


def make_bundle(request: BundleRequest, redactor: Redactor) -> Bundle:
    """Collect and redact. Unreadable files are listed instead."""
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
    """Write the archive. The same content gives the same bytes."""
    with atomic_output(path) as out, gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed:  # noqa: SIM117 - one shape
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, data in bundle.entries.items():
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mode = len(data), 0o644
                archive.addfile(entry, io.BytesIO(data))


def _files(paths: RunPaths) -> list[JsonObject]:
    """The run's files with sizes, times and numbers of lines."""
    files = [*paths.existing_files(), *sorted(paths.output.parent.glob(f"{paths.output.stem}_*.json*"))]
    entries = []
    for path in dict.fromkeys(files):
        stat = path.stat()
        lines = count_lines(path) if path.suffix == ".jsonl" else None
        entries.append({"name": path.name, "size_bytes": stat.st_size, "changed_at": stat.st_mtime, "lines": lines})
    return entries


def _add_document(bundle: Bundle, name: str, path: Path, redactor: Redactor) -> None:
    try:
        bundle.add(name, redactor.json(orjson.loads(path.read_bytes())))
    except (OSError, orjson.JSONDecodeError) as error:
        bundle.left_out.append(f"{name}: cannot be read ({error})")


def _add_failures(bundle: Bundle, path: Path, redactor: Redactor) -> None:
    first, last, count = first_and_last(path, _MAX_FAILURES)
    rows: list[JsonObject] = [{str(key): row[key] for key in _FAILURE_KEYS if key in row} for row in [*first, *last]]
    bundle.add("failures.jsonl", _jsonl(rows, redactor))
    if count > len(rows):
        bundle.left_out.append(f"failures.jsonl: {count - len(rows)} of {count} failures, from the middle")


def _jsonl(rows: Sequence[JsonObject], redactor: Redactor) -> bytes:
    return b"".join(
        orjson.dumps(redactor.value(truncate_texts(row, _MAX_TEXT)), option=orjson.OPT_NON_STR_KEYS) + b"\n"
        for row in rows
    )


def _logs(paths: RunPaths, more: Sequence[Path], bundle: Bundle) -> list[Path]:
    """The logs of the run and those requested; only the latest if there are too many."""
    logs: list[Path] = []
    for path in (paths.logs, *more) if paths.logs.is_dir() else more:
        logs += [inner for inner in path.rglob("*") if inner.is_file()] if path.is_dir() else [path]
    logs = sorted(dict.fromkeys(logs), key=lambda path: -path.stat().st_mtime)
    if len(logs) > _MAX_LOGS:
        bundle.left_out.append(f"logs: the {len(logs) - _MAX_LOGS} oldest of {len(logs)}")
    return logs[:_MAX_LOGS]


def _log_name(path: Path, bundle: Bundle) -> str:
    name, number = f"logs/{path.name}", 2
    while name in bundle.entries:
        name, number = f"logs/{path.stem}-{number}{path.suffix}", number + 1
    return name


def head_and_tail(path: Path, *, head_bytes: int, tail_bytes: int) -> str:
    """A small file completely, else its beginning and its end, in complete lines if possible."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= head_bytes + tail_bytes:
            return _lines(stream.read())
        first = stream.read(head_bytes)
        stream.seek(size - tail_bytes)
        last = stream.read(tail_bytes)
    first = first[: first.rfind(b"\n") + 1] or first
    last = last[last.find(b"\n") + 1 :] or last
    omitted = size - len(first) - len(last)
    return f"{_lines(first)}\n… {omitted} bytes left out …\n{_lines(last)}"


def count_lines(path: Path) -> int:
    """The number of lines of a file, read in blocks."""
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(_BLOCK), b""))


def first_and_last(path: Path, number: int) -> tuple[list[JsonObject], list[JsonObject], int]:
    """The first and last objects of a JSONL file, and its number of lines. Invalid lines are skipped."""
    first: list[JsonObject] = []
    last: deque[bytes] = deque(maxlen=number)
    count = 0
    with path.open("rb") as stream:
        for line in stream:
            count += 1
            if len(first) < number:
                first.extend(_objects([line]))
            else:
                last.append(line)
    return first, list(_objects(last)), count


def truncate_texts(value: Any, max_length: int) -> Any:
    """A copy with texts of at most `max_length` characters and lists of at most 50 entries."""
    if isinstance(value, dict):
        return {name: truncate_texts(child, max_length) for name, child in value.items()}
    if isinstance(value, list):
        entries = [truncate_texts(child, max_length) for child in value[:50]]
        return [*entries, f"… {len(value) - 50} more"] if len(value) > 50 else entries
    if isinstance(value, str) and len(value) > max_length:
        return f"{value[:max_length]}… ({len(value)} characters)"
    return value


def _objects(lines: Any) -> Iterator[JsonObject]:
    for line in lines:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(row, dict):
            yield row


def _lines(data: bytes) -> str:
    lines = data.decode("utf-8", errors="replace").split("\n")
    return "\n".join(line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…" for line in lines)
