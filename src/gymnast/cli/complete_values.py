"""Candidates for the values on a command line: environments, configs, model servers, runs, override keys, files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BUILTIN: Final = Path(__file__).parents[1] / "builtin"
_ENVIRONMENTS: Final = "resources_servers"
_MODELS: Final = "responses_api_models"
_SERVER_FOLDERS: Final = (_ENVIRONMENTS, "responses_api_agents", _MODELS, "environments", "benchmarks")
_POLICY_KEYS: Final = ("policy_base_url", "policy_model_name", "policy_api_key")
_MAX_ENTRIES: Final = 5_000  # files looked at for runs: a Tab must not search a whole disk
_MAX_DEPTH: Final = 4
_RUN_MARKS: Final = ("_run.json", "_materialized_inputs.jsonl")


class Candidates(NamedTuple):
    """What may be inserted. The mode tells the shell how: `words`, `files` (quoted), `open` (no blank follows)."""

    mode: str
    rows: list[tuple[str, str]]

    def add_prefix(self, text: str) -> Candidates:
        """The same candidates as values of an option written with `=`."""
        return Candidates(self.mode, [(f"{text}{candidate}", about) for candidate, about in self.rows])


NOTHING: Final = Candidates("words", [])


class Context(NamedTuple):
    """What the rest of the command line says: folders to search, and the configs whose keys can be overridden."""

    search_dirs: list[Path]
    configs: list[str]

    @classmethod
    def of(cls, words: Sequence[str]) -> Context:
        dirs, configs = [], []
        for option, value in _option_values(words):
            if option == "--search-dir":
                dirs.append(Path(value).expanduser())
            elif option in {"-c", "--config"}:
                configs.append(value)
            elif option in {"-e", "--environment", "--against", "--resources-server"}:
                configs.append(_config_path(_ENVIRONMENTS, value))
            elif option == "--model-type":
                configs.append(_config_path(_MODELS, value))
        return cls(dirs, configs)

    @property
    def roots(self) -> list[Path]:
        return [*self.search_dirs, Path(), BUILTIN]


def of_kind(kind: Any, prefix: str, context: Context) -> Candidates:  # noqa: PLR0911 - one per kind
    """The candidates of a kind of value that start with `prefix`; a list is the values themselves."""
    if isinstance(kind, list):
        return among(dict.fromkeys(kind, ""), prefix)
    match kind:
        case "environment":
            return among(dict.fromkeys(_server_names(context, _ENVIRONMENTS), ""), prefix)
        case "model_type":
            return among(dict.fromkeys(_server_names(context, _MODELS), ""), prefix)
        case "config":
            return _files(prefix, context.roots, suffixes=(".yaml", ".yml"))
        case "run":
            return _runs(prefix)
        case "override":
            return _override_keys(prefix, context)
        case "file":
            return _files(prefix, [Path()])
        case "folder":
            return _files(prefix, [Path()], suffixes=())
        case _:
            return NOTHING


def among(known: dict[str, str], prefix: str) -> Candidates:
    """Those of the known words that start with `prefix`."""
    return Candidates("words", [(word, about) for word, about in known.items() if word.startswith(prefix)])


def _option_values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for position, word in enumerate(words[:-1]):
        option, equals, value = word.partition("=")
        if equals:
            yield option, value
        elif word.startswith("-") and position + 1 < len(words) - 1:
            yield word, words[position + 1]


def _config_path(kind: str, name: str) -> str:
    folder, _, flavor = name.partition("/")
    return f"{kind}/{folder}/configs/{flavor or folder}.yaml"


def _server_names(context: Context, kind: str) -> list[str]:
    names = set()
    for root in context.roots:
        for config in (root / kind).glob("*/configs/*.yaml"):
            folder = config.parent.parent.name
            names.add(folder if config.stem == folder else f"{folder}/{config.stem}")
    return sorted(names)


def _files(prefix: str, roots: Iterable[Path], suffixes: tuple[str, ...] | None = None) -> Candidates:
    """Entries of the folder that `prefix` is in; only folders and files with these suffixes, if given."""
    folder, start = os.path.split(prefix)
    head = prefix[: len(prefix) - len(start)]
    entries: dict[str, bool] = {}
    for root in roots:
        for entry in _scan(root / os.path.expanduser(folder)):  # noqa: PTH111 - a Path would drop "./"
            if not entry.name.startswith(start) or (entry.name[0] == "." and not start):
                continue
            if root == BUILTIN and not folder and entry.name not in _SERVER_FOLDERS:
                continue
            is_folder = entry.is_dir()
            if entry.name != "__pycache__" and (is_folder or suffixes is None or entry.name.endswith(suffixes)):
                entries.setdefault(f"{head}{entry.name}{'/' if is_folder else ''}", is_folder)
    rows = [(name, "") for name in sorted(entries)]
    is_open = len(entries) == 1 and all(entries.values())
    return Candidates("files,open" if is_open else "files", rows)


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _runs(prefix: str) -> Candidates:
    """The output files of runs below the folder of `prefix`; files, if there is no run."""
    folder, _ = os.path.split(prefix)
    start = Path(folder).expanduser()
    outputs = {name for name in _walk_runs(start, folder) if name.startswith(prefix)}
    return Candidates("files", [(name, "") for name in sorted(outputs)]) if outputs else _files(prefix, [Path()])


def _walk_runs(start: Path, shown: str) -> Iterator[str]:
    """Breadth first, within limits: the runs nearest to the folder are found even if it holds very many files."""
    folders, looked = [(start, shown, 0)], 0
    for folder, name, depth in folders:
        for entry in _scan(folder):
            looked += 1
            path = os.path.join(name, entry.name) if name else entry.name  # noqa: PTH118 - keeps the text as typed
            mark = next((mark for mark in _RUN_MARKS if entry.name.endswith(mark)), None)
            if mark is not None:
                yield path.removesuffix(mark) + ".jsonl"
            elif entry.name.endswith("_chunks"):
                yield path.removesuffix("_chunks") + ".jsonl"
            elif depth < _MAX_DEPTH and entry.name[0] not in "._" and entry.is_dir(follow_symlinks=False):
                folders.append((Path(entry.path), path, depth + 1))
        if looked > _MAX_ENTRIES:
            return


def _override_keys(prefix: str, context: Context) -> Candidates:
    """Keys of the configs on the line, after `+`, `++` or `~`. A level at a time: keys are long."""
    sign = prefix[: len(prefix) - len(prefix.lstrip("+~"))]
    typed = prefix[len(sign) :]
    if "=" in typed:
        return NOTHING
    keys = {*_POLICY_KEYS, *(key for config in context.configs for key in _config_keys(config, context.roots, set()))}
    level = typed.count(".")
    steps: dict[str, bool] = {}
    for key in sorted(key for key in keys if key.startswith(typed)):
        parts = key.split(".")
        short = ".".join(parts[: level + 1])
        is_parent = len(parts) > level + 1
        steps[short] = steps.get(short, False) or is_parent
    rows = [(f"{sign}{key}{'.' if is_parent else '' if sign == '~' else '='}", "") for key, is_parent in steps.items()]
    return Candidates("words" if sign == "~" and not any(steps.values()) else "open", rows)


def _config_keys(config: str, roots: Sequence[Path], seen: set[Path]) -> Iterator[str]:
    """The dotted keys of a config file and of those that it includes."""
    path = next((root / config for root in roots if (root / config).is_file()), None)
    if path is None or path in seen:
        return
    seen.add(path)
    lines = path.read_text(errors="replace").splitlines()
    yield from yaml_keys(lines)
    for included in _included_paths(lines):
        yield from _config_keys(included, roots, seen)


def yaml_keys(lines: Sequence[str]) -> Iterator[str]:
    """The dotted keys of block mappings. A YAML parser would take longer to import than everything else here takes."""
    stack: list[tuple[int, str]] = []
    skipped_below: int | None = None  # deeper lines belong to a list's item or to a block of text
    for line in lines:
        content = line.strip()
        indent = len(line) - len(line.lstrip())
        if not content or content[0] == "#" or (skipped_below is not None and indent > skipped_below):
            continue
        key, colon, value = content.partition(":")
        skipped_below = indent if content[0] == "-" or value.strip()[:1] in {"|", ">"} else None
        if not colon or content[0] in "-{[\"'" or value[:1].strip() or " " in key:
            continue
        while stack and stack[-1][0] >= indent:
            stack.pop()
        stack.append((indent, key))
        yield ".".join(name for _, name in stack)


def _included_paths(lines: Sequence[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        content = line.strip()
        if not line.startswith((" ", "-")):
            inside = content == "config_paths:"
        elif inside and content.startswith("- "):
            yield content[2:].strip("\"' ")
