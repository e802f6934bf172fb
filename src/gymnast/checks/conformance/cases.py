"""Verifier cases: requests with a known reward or error, one JSON object per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args

import orjson
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError, model_validator

from gymnast.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

CaseKind = Literal["full_reward", "zero_reward", "malformed", "determinism"]
KINDS: Final[tuple[CaseKind, ...]] = get_args(CaseKind)


class Case(BaseModel):
    """A request to the verifier and its expected outcome."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    kind: CaseKind
    request: dict[str, Any]
    """The body of POST /verify: the row's fields, `responses_create_params` and `response`."""
    expected_reward: FiniteFloat | None = None
    expected_error: int | None = None
    """The expected HTTP status."""

    @model_validator(mode="after")
    def _one_expectation(self) -> Self:
        if (self.expected_reward is None) == (self.expected_error is None):
            raise ValueError("give either `expected_reward` or `expected_error`")
        return self


def parse_cases(lines: Iterable[bytes], path: str) -> tuple[list[Case], list[Problem]]:
    """Parse the cases of a file; returns them and the file's problems."""
    cases, problems = list[Case](), list[Problem]()
    names: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            case = Case.model_validate(orjson.loads(line))
        except (orjson.JSONDecodeError, ValidationError) as error:
            problems.append(Problem(f"not a verifier case: {_first_error(error)}", where, f"write {CASE_SHAPE}"))
            continue
        if case.name in names:
            problems.append(Problem(f"duplicate case '{case.name}'", where, "give each case a unique name"))
        names.add(case.name)
        cases.append(case)
    return cases, problems + list(_set_problems(cases, path))


CASE_SHAPE: Final = "{name, kind, request, expected_reward | expected_error}; kinds: " + ", ".join(KINDS)


def _set_problems(cases: list[Case], path: str) -> Iterable[Problem]:
    if not cases:
        yield Problem("there are no verifier cases", path, f"add some, one JSON object per line: {CASE_SHAPE}")
        return
    for kind in KINDS:
        if not any(case.kind == kind for case in cases):
            yield Problem(f"there is no case of kind {kind}", path, "add at least one of each kind")
    if any(case.expected_reward is None and case.kind in {"full_reward", "zero_reward"} for case in cases):
        yield Problem("a full_reward or zero_reward case expects an error", path, "give that case the kind malformed")
    best, worst = _rewards(cases, "full_reward"), _rewards(cases, "zero_reward")
    if best and worst and min(best) <= max(worst):
        text = "a full_reward case expects no more reward than a zero_reward case"
        yield Problem(text, path, "correct the expected rewards")


def _rewards(cases: list[Case], kind: CaseKind) -> list[float]:
    return [case.expected_reward for case in cases if case.kind == kind and case.expected_reward is not None]


def _first_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"].removeprefix("Value error, ")
    return str(error)
