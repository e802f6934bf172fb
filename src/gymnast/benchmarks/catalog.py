"""Finds benchmarks by name: in `benchmarks/` of the search folders, here, and among the built-ins.

Files directly in a search folder count, too, if they have the keys of a benchmark. The first of a name wins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.benchmarks.definition import read_benchmark
from gymnast.config.tree import plain
from gymnast.config.yaml_source import read_yaml
from gymnast.errors import ConfigError, NotFoundError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gymnast.benchmarks.definition import Benchmark
    from gymnast.config.roots import Roots

_FOLDER: Final = "benchmarks"
_KEYS: Final = frozenset({"description", "data"})
_SUFFIXES: Final = (".yaml", ".yml")
_YEAR: Final = re.compile(r"20(\d\d)$")


@dataclass(frozen=True, slots=True)
class BenchmarkEntry:
    """A benchmark that was found; `problem` says why its file cannot be used."""

    name: str
    path: Path
    benchmark: Benchmark | None = None
    problem: str | None = None


def list_benchmarks(roots: Roots) -> list[BenchmarkEntry]:
    """All benchmarks, by name."""
    return [_read(name, path) for name, path in sorted(_files(roots).items())]


def find_benchmark(name: str, roots: Roots) -> Benchmark:
    """A benchmark by its name or its file's path. Raises NotFoundError that suggests similar names."""
    files = _files(roots)
    if name.endswith(_SUFFIXES):
        stem = name.rpartition(".")[0]
        if stem in files and roots.find(name) is None:
            raise NotFoundError(f"there is no file '{name}' here", next=f"name the built-in benchmark: {stem}")
        return read_benchmark(roots.require(name, "the benchmark file"))
    alike = [known for known in files if _plain(known) == _plain(name)]
    if name not in files and len(alike) == 1:  # MATH-500 is math500
        name = alike[0]
    if name not in files:
        raise NotFoundError(f"no benchmark '{name}'", next=_suggest(name, files))
    return read_benchmark(files[name])


def _plain(name: str) -> str:
    """The name without what spellings differ in: AIME 2024 is aime24, HumanEval+ is humaneval_plus."""
    letters = "".join(letter for letter in name.lower().replace("+", "plus") if letter.isalnum())
    return _YEAR.sub(r"\1", letters)


def _suggest(name: str, known: Iterable[str]) -> str | None:
    """Benchmarks of the same family, else similar names, else where the list is."""
    plain_name, names = _plain(name), sorted(known)
    family = [other for other in names if plain_name and _plain(other).startswith(plain_name)]
    if family:
        return "did you mean " + " or ".join(f"'{other}'" for other in family) + "?"
    close = suggest(name, names)
    return close if close and close.startswith("did you mean") else "gymnast eval --list shows all of them"


def _files(roots: Roots) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in _candidates(roots):
        files.setdefault(path.stem, path)
    return files


def _candidates(roots: Roots) -> Iterator[Path]:
    for root in roots:
        yield from _yaml_files(root / _FOLDER)
        if root in roots.extra:
            yield from filter(_is_benchmark, _yaml_files(root))


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES and path.is_file())


def _is_benchmark(path: Path) -> bool:
    try:
        content = plain(read_yaml(path))
    except ConfigError:
        return False
    return isinstance(content, dict) and content.keys() >= _KEYS


def _read(name: str, path: Path) -> BenchmarkEntry:
    try:
        return BenchmarkEntry(name, path, read_benchmark(path))
    except ConfigError as error:
        return BenchmarkEntry(name, path, problem=str(error))
