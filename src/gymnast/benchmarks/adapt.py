"""Makes the rows of a benchmark from its files: one file after another, or by an adapter.

An adapter is a function `read_rows(files)` from the files by name to rows: a module of `adapters`, or a Python file
next to the benchmark's own.
"""

from __future__ import annotations

import importlib.util
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, cast

from gymnast.benchmarks import adapters
from gymnast.benchmarks.rows import read_rows
from gymnast.errors import ConfigError, DataError, Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gymnast.benchmarks.definition import Benchmark
    from gymnast.benchmarks.source import DataFile
    from gymnast.types.json import JsonObject

    ReadRows = Callable[[Mapping[str, Path]], Iterator[JsonObject]]


def read_data(benchmark: Benchmark, data: DataFile) -> Iterator[JsonObject]:
    """The rows of a benchmark's data. Raises DataError if the files do not have the expected shape."""
    adapter = benchmark.definition.adapter
    if adapter is None:
        for name, path in data.files.items():
            yield from read_rows(path, name)
        return
    read = _find_adapter(adapter, benchmark)
    try:
        yield from read(data.files)
    except (KeyError, ValueError, TypeError, LookupError) as error:
        what = f"the adapter '{adapter}' cannot read the data: {type(error).__name__}: {error}"
        raise DataError(what, where=data.origin) from error


def _find_adapter(name: str, benchmark: Benchmark) -> ReadRows:
    if name.endswith(".py"):
        return _load_file(benchmark.path.parent / name, benchmark)
    known = [module.name for module in iter_modules(adapters.__path__)]
    if name not in known:
        problem = Problem(f"unknown adapter '{name}'", where=str(benchmark.path), next=suggest(name, known))
        raise ConfigError([problem])
    return cast("ReadRows", import_module(f"{adapters.__name__}.{name}").read_rows)


def _load_file(path: Path, benchmark: Benchmark) -> ReadRows:
    spec = importlib.util.spec_from_file_location(f"adapter_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError([Problem(f"the adapter {path} does not exist", where=str(benchmark.path))])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    read: Any = getattr(module, "read_rows", None)
    if not callable(read):
        raise ConfigError([Problem(f"{path.name} has no function `read_rows`", where=str(benchmark.path))])
    return cast("ReadRows", read)
