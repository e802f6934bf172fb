"""A log file per instance, `<folder>/<instance>.log`, created with its first message."""

from __future__ import annotations

import logging
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def log_folder() -> Iterator[Path]:
    """A temporary log directory. It is kept unless it is empty."""
    folder = Path(tempfile.mkdtemp(prefix="gymnast-logs-"))
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


class InstanceLogs:
    """Sends the log messages of instances to files inside the `with` block."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._names = names
        self._folder = folder
        self._handlers: list[tuple[logging.Logger, logging.Handler, bool]] = []

    def __enter__(self) -> Self:
        for name in self._names:
            logger = logging.getLogger(f"gymnast.instance.{name}")
            handler = _LazyFileHandler(self._folder / f"{name}.log")
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
            self._handlers.append((logger, handler, logger.propagate))
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        for logger, handler, propagate in self._handlers:
            logger.removeHandler(handler)
            logger.propagate = propagate
            handler.close()


class _LazyFileHandler(logging.FileHandler):
    """A file handler that creates its directory with the first message."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(path, delay=True, encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        super().emit(record)
