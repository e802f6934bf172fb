"""Whether rows fit the task of the environment they go to: known before the first call, where the task is declared."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pydantic import ValidationError

from gymnast.errors import UserError
from gymnast.kit.task_server import TaskServer
from gymnast.rollouts.row_map import name_fields
from gymnast.runtime.cell import resolve_placement
from gymnast.runtime.loader import is_server_class, load_entry
from gymnast.types.task import AGENT_REF, PARAMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gymnast.config import Instance
    from gymnast.kit.attempt import Task
    from gymnast.types.json import JsonObject

CheckRow = Callable[[str, "JsonObject"], str | None]
"""Why a row does not fit its agent's environment, or None."""
_ANSWERS = ("answer", "target", "label", "solution", "output", "gold", "ground_truth", "expected_answer")


def find_task_model(instance: Instance) -> type[Task] | None:
    """The task model that an environment declares; None if it is not built with the kit, or cannot be loaded here."""
    if instance.url is not None or instance.directory is None or resolve_placement(instance).runs_in == "venv":
        return None
    try:
        entry = load_entry(instance)
    except UserError:
        return None
    return entry.task_type if is_server_class(entry) and issubclass(entry, TaskServer) else None


def make_row_check(instances: Mapping[str, Instance]) -> CheckRow:
    """A check of rows against the tasks of configured environments, which are loaded when a row needs them."""
    models: dict[str, list[tuple[str, type[Task]]]] = {}

    def check(agent: str, row: JsonObject) -> str | None:
        if agent not in models:
            models[agent] = list(_models_of(instances, agent))
        for environment, model in models[agent]:
            try:
                model.model_validate(row)
            except ValidationError as error:
                return _describe(error, environment, row)
        return None

    return check


def suggest_map(target: str, row: JsonObject) -> str | None:
    """`--map TARGET=SOURCE` with the field of the row that probably holds it."""
    names = [name for name, value in row.items() if name != PARAMS and not isinstance(value, dict)]
    close = get_close_matches(target, names, 1)
    likely = [name for name in _ANSWERS if name in names] if "answer" in target or "target" in target else []
    sources = close or likely
    return f"--map {target}={sources[0]}" if sources else None


def _models_of(instances: Mapping[str, Instance], agent: str) -> Iterable[tuple[str, type[Task]]]:
    for name in instances[agent].environments if agent in instances else ():
        model = find_task_model(instances[name]) if name in instances else None
        if model is not None:
            yield name, model


def _describe(error: ValidationError, environment: str, row: JsonObject) -> str:
    parts, maps = [], []
    for problem in error.errors(include_url=False):
        path = ".".join("*" if isinstance(step, int) else str(step) for step in problem["loc"])
        if problem["type"] != "missing":
            parts.append(f"'{path}': {problem['msg']}, got {_type_name(problem['input'])}")
            if problem["type"] == "string_type" and isinstance(problem["input"], (int, float)):
                source = next((name for name, value in row.items() if value == problem["input"] and name != path), path)
                maps.append(f"--map {path}='{{{source}}}'")
            continue
        parts.append(f"no '{path}'")
        maps.append(suggest_map(path, row) or f"--map {path}=FIELD")
    text = f"the row does not fit '{environment}': {', '.join(parts[:4])}"
    if maps:
        fields = name_fields({name: value for name, value in row.items() if name not in {PARAMS, AGENT_REF}})
        text += f"; map it with {' '.join(maps[:4])} (fields: {fields})"
    return text


def _type_name(value: object) -> str:
    """What a value is in JSON; the value itself would make each row's message another one."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
