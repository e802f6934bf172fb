"""Whether rows fit the task of the environment they go to: known before the first call, where the task is declared."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from gymnast.errors import UserError
from gymnast.kit.agent import Agent
from gymnast.kit.task_server import TaskServer
from gymnast.rollouts.row_map import ANSWER_FIELDS, name_fields
from gymnast.runtime.cell import resolve_placement
from gymnast.runtime.loader import is_server_class, load_entry
from gymnast.types.nouns import count_noun
from gymnast.types.task import AGENT_REF, PARAMS, TASK_SOURCE

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from gymnast.config import Instance
    from gymnast.kit.attempt import Task
    from gymnast.types.json import JsonObject

CANNOT_BE_SCORED: Final = "cannot be scored"
_QUESTIONS: Final = ("question", "problem", "prompt", "query", "instruction", "input", "text", "task")
_SYNONYMS: Final = (ANSWER_FIELDS, _QUESTIONS)


def find_task_model(instance: Instance) -> type[Task] | None:
    """The row fields that an environment or agent declares; None if it declares none, or cannot be loaded here."""
    if instance.url is not None or instance.directory is None or resolve_placement(instance).runs_in == "venv":
        return None
    try:
        entry = load_entry(instance)
    except UserError:
        return None
    return entry.task_type if is_server_class(entry) and issubclass(entry, (TaskServer, Agent)) else None


class RowCheck:
    """Checks rows against the tasks of configured environments and agents, which are loaded when a row needs them."""

    def __init__(self, instances: Mapping[str, Instance]) -> None:
        self._instances = instances
        self._models: dict[str, list[tuple[str, type[Task]]]] = {}
        self._lacking: dict[str, dict[str, JsonObject]] = {}
        """By environment: optional fields with an expected answer that no row has had yet, and the first row."""
        self._unscorable: Counter[str] = Counter()
        """Why no answer to a row can be right, and the number of such rows."""

    def find_problem(self, agent: str, row: JsonObject) -> str | None:
        """Why a row does not fit its agent or the agent's environment, or None."""
        for environment, model in self.models_of(agent):
            try:
                task = model.model_validate(row)
            except ValidationError as error:
                return _describe(error, environment, row, text_fields(model))
            reason = task.unscorable_reason(row[PARAMS])
            if reason is not None:
                self._unscorable[reason] += 1
            lacking = self._lacking.setdefault(environment, dict.fromkeys(_optional_answers(model), row))
            for name in lacking.keys() & row.keys():
                del lacking[name]
        return None

    def models_of(self, agent: str) -> list[tuple[str, type[Task]]]:
        """The agent and its environments, as far as they declare their tasks, with these."""
        if agent not in self._models:
            self._models[agent] = list(_models_of(self._instances, agent))
        return self._models[agent]

    def warnings(self) -> list[str]:
        """Answers that no row has under the name which its environment reads, but probably under another, and rows to
        which no answer can be right."""
        unmapped = [
            f"no row has '{name}', which {environment} reads; if it is '{source}', map it with {text}"
            for environment, lacking in self._lacking.items()
            for name, row in lacking.items()
            for source, text in _unread_source(name, row, self._declared_fields(environment))
        ]
        return unmapped or [  # a missing map is the reason of both
            f"{count_noun(count, 'row')} {CANNOT_BE_SCORED} ({reason}): see gymnast check rows"
            for reason, count in self._unscorable.most_common(5)
        ]

    def _declared_fields(self, environment: str) -> set[str]:
        return {
            info.alias or name
            for models in self._models.values()
            for other, model in models
            if other == environment
            for name, info in model.model_fields.items()
        }


def _optional_answers(model: type[Task]) -> list[str]:
    names = [info.alias or name for name, info in model.model_fields.items() if not info.is_required()]
    return [name for name in names if name in ANSWER_FIELDS]


def _unread_source(target: str, row: JsonObject, declared: Container[str]) -> Iterator[tuple[str, str]]:
    """The field that probably holds a target and is not read for anything else, and the map."""
    unread = {name: value for name, value in row.items() if name not in declared}
    source = _find_source(target, list(unread))
    if source is not None:
        yield source, suggest_maps([target], unread, (target,))[target]


def suggest_maps(targets: Iterable[str], row: JsonObject, texts: Container[str] = ()) -> dict[str, str]:
    """`--map TARGET=SOURCE` with the field of the row that probably holds each target; no field is used twice.

    Targets in `texts` are texts: a number is mapped as one.
    """
    names = [name for name, value in row.items() if name != PARAMS and not isinstance(value, dict)]
    maps: dict[str, str] = {}
    for target in targets:
        source = _find_source(target, names)
        if source is not None:
            names.remove(source)
            is_number = isinstance(row[source], (int, float)) and not isinstance(row[source], bool)
            maps[target] = (
                f"--map {target}='{{{source}}}'" if target in texts and is_number else f"--map {target}={source}"
            )
    return maps


def _find_source(target: str, names: Sequence[str]) -> str | None:
    """A field with a name of the same meaning, else one with a similar name."""
    folded = {name.lower().replace("-", "_"): name for name in names}
    for synonyms in _SYNONYMS:
        if any(word in target for word in synonyms[:4]):
            field = next((folded[word] for word in synonyms if word in folded), None)
            if field is not None:
                return field
    taken = {word for synonyms in _SYNONYMS for word in synonyms}
    others = {name: whole for name, whole in folded.items() if name not in taken}
    close = get_close_matches(target, others, 1)
    return others[close[0]] if close else None


def _models_of(instances: Mapping[str, Instance], agent: str) -> Iterable[tuple[str, type[Task]]]:
    for name in (agent, *instances[agent].environments) if agent in instances else ():
        model = find_task_model(instances[name]) if name in instances else None
        if model is not None:
            yield name, model


def text_fields(model: type[Task]) -> set[str]:
    """The fields of a task that must be texts."""
    return {info.alias or name for name, info in model.model_fields.items() if info.annotation is str}


def _describe(error: ValidationError, environment: str, row: JsonObject, texts: Container[str]) -> str:
    parts, maps = [], []
    problems = error.errors(include_url=False)
    missing = [".".join(map(str, problem["loc"])) for problem in problems if problem["type"] == "missing"]
    suggested = suggest_maps(missing, row, texts)
    for problem in problems:
        path = ".".join("*" if isinstance(step, int) else str(step) for step in problem["loc"])
        if problem["type"] != "missing":
            if problem["type"] == "extra_forbidden":
                parts.append(f"unknown field '{path}'")
                continue
            message = "expected an object" if problem["type"] == "model_type" else problem["msg"]
            parts.append(f"'{path}': {message}, got {_type_name(problem['input'])}")
            if problem["type"] == "string_type" and isinstance(problem["input"], (int, float)):
                source = next((name for name, value in row.items() if value == problem["input"] and name != path), path)
                maps.append(f"--map {path}='{{{source}}}'")
            continue
        parts.append(f"no '{path}'")
        maps.append(suggested.get(path) or f"--map {path}=FIELD")
    text = f"the row does not fit '{environment}': {', '.join(parts[:4])}"
    if maps:
        fields = name_fields(
            {name: value for name, value in row.items() if name not in {PARAMS, AGENT_REF, TASK_SOURCE}}
        )
        text += f"; map it with {' '.join(maps[:4])} (fields: {fields})"
    return text


def _type_name(value: object) -> str:
    """What a value is in JSON; the value itself would make each row's message another one."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
