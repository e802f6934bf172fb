"""Makes the tasks of a benchmark from the rows of its data: fields by templates, then the prompt.

One error lists all bad rows. Every row is a task of its own, even if another one is equal to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from gymnast.errors import ConfigError, DataError, Problem
from gymnast.rollouts.prompt import PromptTemplate
from gymnast.store.atomic import atomic_output
from gymnast.types.task import TASK_INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gymnast.benchmarks.definition import Benchmark, FieldRule
    from gymnast.types.json import JsonObject

    MakeField = Callable[[JsonObject], Any]

_MAX_LISTED: Final = 5


def write_tasks(benchmark: Benchmark, rows: Iterable[JsonObject], path: Path, *, limit: int | None = None) -> int:
    """Write the tasks of all rows, or of the first ones; on an error nothing is written. Returns their number."""
    maker, count, written = TaskMaker(benchmark), 0, 0
    problems: list[str] = []
    with atomic_output(path) as out:
        for row in rows:
            count += 1
            if limit is not None and count > limit:
                continue  # still counted, to check that the data is whole
            try:
                out.write(orjson.dumps({**maker.make(row), TASK_INDEX: count - 1}) + b"\n")
                written += 1
            except (ValueError, TypeError) as error:
                problems.append(f"  row {count}: {error}")
        if problems:
            listed = "\n".join(problems[:_MAX_LISTED]) + ("\n  …" if len(problems) > _MAX_LISTED else "")
            what = f"{len(problems)} of {count} rows do not fit the benchmark '{benchmark.name}':\n{listed}"
            raise DataError(what, where=str(benchmark.path))
        _check_count(benchmark, count)
    return written


def _check_count(benchmark: Benchmark, count: int) -> None:
    expected = benchmark.definition.data.rows
    if count == 0 or (expected is not None and count != expected):
        wanted = f"expected {expected}" if expected is not None else "expected at least one"
        raise DataError(
            f"the data of benchmark '{benchmark.name}' has {count} rows, {wanted}",
            where=str(benchmark.path),
            next="get the whole file, or correct `data.rows` in the benchmark's file",
        )


class TaskMaker:
    """Makes tasks. Raises ConfigError if a template of the benchmark is not valid."""

    def __init__(self, benchmark: Benchmark) -> None:
        definition = benchmark.definition
        self._jinja = SandboxedEnvironment(undefined=StrictUndefined, finalize=_require_value)
        self._where = str(benchmark.path)
        self._fields = {name: self._compile(name, rule) for name, rule in definition.fields.items()}
        prompt = definition.prompt
        self._prompt = PromptTemplate(prompt.user, prompt.system) if prompt is not None else None

    def make(self, row: JsonObject) -> JsonObject:
        """The task of a row. Raises ValueError that says what is missing."""
        task = {name: self._make_field(name, make, row) for name, make in self._fields.items()} or dict(row)
        return self._prompt.apply(task) if self._prompt is not None else task

    def _make_field(self, name: str, make: MakeField, row: JsonObject) -> Any:
        try:
            return make(row)
        except TemplateError as error:
            known = ", ".join(map(str, row))
            raise ValueError(f"field `{name}`: {error.message} (the row has {known})") from error
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            raise ValueError(f"field `{name}`: {error}") from error

    def _compile(self, name: str, rule: str | FieldRule) -> MakeField:
        if isinstance(rule, str):
            return self._template(name, rule)
        if rule.as_json is not None:
            render = self._template(name, rule.as_json)
            return lambda row: orjson.loads(render(row))
        if rule.copy_of is not None:
            source = rule.copy_of
            return lambda row: _copy(row, source)
        return lambda _: rule.value

    def _template(self, name: str, text: str) -> Callable[[JsonObject], str]:
        try:
            template = self._jinja.from_string(text)
        except TemplateError as error:
            raise ConfigError([Problem(f"`fields.{name}` is not a template: {error}", where=self._where)]) from error
        return template.render


def _require_value(value: Any) -> Any:
    if value is None:
        raise ValueError("the value is null")
    return value


def _copy(row: JsonObject, name: str) -> Any:
    if name not in row:
        raise ValueError(f"the row has no field '{name}' (it has {', '.join(map(str, row))})")
    return row[name]
