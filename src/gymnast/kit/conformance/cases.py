"""Verifier cases: requests of which the reward, or the error, is known. One JSON object a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, Self, get_args

import orjson
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError, model_validator

from gymnast.kit.conformance.findings import Finding

CaseKind = Literal["full_reward", "zero_reward", "malformed", "determinism"]
KINDS: Final[tuple[CaseKind, ...]] = get_args(CaseKind)


class Case(BaseModel):
    """One request to the verifier and what must come of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    kind: CaseKind
    request: dict[str, Any]
    """The body of POST /verify: the row's fields, `responses_create_params` and `response`."""
    expected_reward: FiniteFloat | None = None
    expected_error: int | None = None
    """The status of the refusal."""

    @model_validator(mode="after")
    def _one_expectation(self) -> Self:
        if (self.expected_reward is None) == (self.expected_error is None):
            raise ValueError("give either `expected_reward` or `expected_error`")
        return self


def parse_cases(lines: Iterable[bytes], path: str) -> tuple[list[Case], list[Finding]]:
    """The cases of a file and what is wrong with it."""
    cases, findings = list[Case](), list[Finding]()
    names: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            case = Case.model_validate(orjson.loads(line))
        except (orjson.JSONDecodeError, ValidationError) as error:
            findings.append(Finding(f"this is no verifier case: {_first(error)}", where, f"write {_SHAPE}"))
            continue
        if case.name in names:
            findings.append(Finding(f"the case '{case.name}' is there twice", where, "give each case its own name"))
        names.add(case.name)
        cases.append(case)
    return cases, findings + list(_set_findings(cases, path))


_SHAPE: Final = "{name, kind, request, expected_reward | expected_error}; kinds: " + ", ".join(KINDS)


def _set_findings(cases: list[Case], path: str) -> Iterable[Finding]:
    if not cases:
        yield Finding("there are no verifier cases", path, f"write some, one JSON object a line: {_SHAPE}")
        return
    for kind in KINDS:
        if not any(case.kind == kind for case in cases):
            yield Finding(f"there is no case of kind {kind}", path, "add at least one of each kind")
    if any(case.expected_reward is None and case.kind in {"full_reward", "zero_reward"} for case in cases):
        yield Finding("a case of full or zero reward expects an error", path, "call that case malformed")
    best, worst = _rewards(cases, "full_reward"), _rewards(cases, "zero_reward")
    if best and worst and min(best) <= max(worst):
        text = "a case of full reward expects no more than one of zero reward"
        yield Finding(text, path, "correct the expected rewards")


def _rewards(cases: list[Case], kind: CaseKind) -> list[float]:
    return [case.expected_reward for case in cases if case.kind == kind and case.expected_reward is not None]


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"].removeprefix("Value error, ")
    return str(error)
