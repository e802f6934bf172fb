"""Finds log files, and reads them in blocks of complete lines."""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

BLOCK_BYTES: Final = 1 << 22
_COLOR: Final = re.compile(rb"\x1b\[[\d;]*[A-Za-z]")
LOG_NAME: Final = re.compile(r"\.(?:log|out|err|txt)(?:\.\d+)?$")
_SKIPPED_FOLDERS: Final = frozenset({"node_modules", "site-packages", "__pycache__"})
_OTHER_LOG_NAME: Final = re.compile(
    r"^[^.]+$|(?i:\.(?:stdout|stderr|nohup|journal|kubelet|dmesg|events|trace|logs?[-_.]\S+|[oe]\d+)$"
    r"|^(?:log|stdout|stderr|journal|dmesg|messages|syslog|console)\b)"
)
"""Names that logs have elsewhere: no suffix at all, those of schedulers, journals and redirected output."""
_NOT_LOGS: Final = re.compile(r"(?i)\.(?:jsonl?|ya?ml|toml|py|md|sh|csv|lock|cfg|ini|html|pid|png|svg)$")
_TEXT_BYTES: Final = 4096
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


_PROGRESS: Final = re.compile(rb"\d%|it/s|s/it")


def find_logs(folder: Path) -> list[Path]:
    """The log files in a folder, recursively, sorted by name. Skips installed packages."""
    logs: list[Path] = []
    others: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS]
        paths = [path for name in names if not name.startswith(".") and (path := Path(root, name)).is_file()]
        logs += [path for path in paths if LOG_NAME.search(path.name)]
        others += [path for path in paths if not LOG_NAME.search(path.name) and not _NOT_LOGS.search(path.name)]
    named = [path for path in others if _OTHER_LOG_NAME.search(path.name)]
    return sorted((*logs, *(path for path in (named if logs or named else others) if _is_text(path))))


def _is_text(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            head = stream.read(_TEXT_BYTES)
    except OSError:
        return False
    return b"\n" in head and (b"\0" not in head or head.startswith(_UTF_16))


def read_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of complete lines without colors, a few megabytes each."""
    return map(_as_shown, _raw_blocks(stream))


def _as_shown(block: bytes) -> bytes:
    """The lines as a terminal shows them: without colors, and without progress that was overwritten."""
    if b"\x1b[" in block:
        block = _COLOR.sub(b"", block)
    if b"\r" not in block:
        return block
    return b"\n".join(line if line.find(b"\r", 0, -1) < 0 else _last_state(line) for line in block.split(b"\n"))


def _last_state(line: bytes) -> bytes:
    """A line without the states of a progress bar that later ones replaced."""
    *overwritten, last = line.rstrip(b"\r").split(b"\r")
    return b" ".join((*(state for state in overwritten if state and not _PROGRESS.search(state)), last))


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    """The bytes of a stream in UTF-8. PowerShell writes redirected output in UTF-16."""
    chunk = stream.read(BLOCK_BYTES)
    if not chunk.startswith(_UTF_16):
        while chunk:
            yield chunk
            chunk = stream.read(BLOCK_BYTES)
        return
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    while chunk:
        if text := decoder.decode(chunk):
            yield text.encode()
        chunk = stream.read(BLOCK_BYTES)


def _raw_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks of complete lines; completes the last line."""
    rest = b""
    chunks = _chunks(stream)
    chunk = next(chunks, b"")
    while chunk:
        following = next(chunks, b"")
        if not following and not chunk.endswith(b"\n"):
            chunk += b"\n"
        end = chunk.rfind(b"\n") + 1
        if end:
            yield rest + chunk[:end]
            rest = chunk[end:]
        else:
            rest = (rest + chunk)[-BLOCK_BYTES:]  # a line of this length is not a log line
        chunk = following
