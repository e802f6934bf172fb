"""`nemo_gym.verifier_fixture`: cases are scored by fresh servers, and updated only if they keep the rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gymnast.compat.nemo_gym.verifier_fixture import (
    VerifierFixture,
    VerifierFixtureError,
    exercise_verifier_fixture,
    load_verifier_fixture,
)

CASES: list[dict[str, Any]] = [
    {"name": "right", "kind": "full_reward", "request": {"reply": "42"}, "expected_reward": 1.0},
    {"name": "wrong", "kind": "zero_reward", "request": {"reply": "41"}, "expected_reward": 0.0},
    {"name": "nothing", "kind": "malformed", "request": {}, "expected_error": "reply"},
    {"name": "twice", "kind": "determinism", "request": {"reply": "near"}, "expected_reward": 0.5},
]


class Request(BaseModel):
    reply: str


class Verifier:
    seed = 0

    async def verify(self, request: Request) -> dict[str, float]:
        return {"reward": {"42": 1.0, "41": 0.0}.get(request.reply, 0.5)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "cases.jsonl", CASES)


def write(path: Path, cases: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return path


def exercise(path: Path, server: Callable[[], Any] = Verifier, **options: Any) -> Any:
    fixture = VerifierFixture(server, Request, path, options.pop("invoke", None), options.pop("reseed", None))
    settings = {"reward_range": (0, 1), "determinism": "unknown", **options}
    return asyncio.run(exercise_verifier_fixture(fixture, **settings))


def test_every_case_is_scored_by_a_server_of_its_own(path: Path) -> None:
    servers: list[Verifier] = []

    def make() -> Verifier:
        servers.append(Verifier())
        return servers[-1]

    results = exercise(path, make, determinism="seeded", reseed=lambda server, _: setattr(server, "seed", 7))
    assert [(each.name, each.observed_rewards) for each in results] == [
        ("right", (1.0,)), ("wrong", (0.0,)), ("nothing", ()), ("twice", (0.5, 0.5)),
    ]  # fmt: skip
    assert [server.seed for server in servers] == [0, 0, 0, 7, 7]
    assert len(exercise(path)) == 3  # determinism counts only if the manifest says seeded


@pytest.mark.parametrize(
    ("changes", "options", "text"),
    [
        ({}, {"reward_range": (0, 2)}, "does not pin the upper endpoint"),
        ({}, {"higher_is_better": False}, "does not pin the lower endpoint"),
        ({}, {"reward_range": (1, 1)}, "lower < upper"),
        ({}, {"reward_range": (0, float("nan"))}, "finite"),
        ({}, {"determinism": "maybe"}, "Unsupported determinism"),
        ({}, {"determinism": "seeded"}, "requires a reseed adapter"),
        ({2: {"expected_error": "other"}}, {}, "error did not contain 'other'"),
        ({2: {"request": {"reply": "42"}}}, {}, "did not raise an error"),
        ({0: {"request": {}}}, {}, "Case 'right' failed"),
        ({}, {"invoke": lambda *_: float("inf")}, "non-finite numeric reward"),
        ({}, {"invoke": lambda *_: 3.0}, r"outside declared range \[0.0, 1.0\]"),
        ({1: {"kind": "full_reward"}}, {}, "missing required cases: zero_reward"),
    ],
)
def test_what_does_not_fit_is_reported(path: Path, changes: dict[int, Any], options: dict[str, Any], text: str) -> None:
    write(path, [{**case, **changes.get(index, {})} for index, case in enumerate(CASES)])
    with pytest.raises(VerifierFixtureError, match=text):
        exercise(path, **options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no cases"),
        ("{", "Invalid JSON"),
        ('{"name": "a", "kind": "full_reward", "request": {}}', "requires expected_reward"),
        ('{"name": "a", "kind": "full_reward", "request": {}, "expected_reward": "1"}', "number"),
        ('{"name": "a", "kind": "malformed", "request": {}, "expected_reward": 1.0}', "requires expected_error"),
    ],
)
def test_a_file_that_has_no_cases_is_reported_with_its_line(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(VerifierFixtureError, match=said):
        load_verifier_fixture(path)


def test_expected_rewards_are_updated_all_or_none(path: Path) -> None:
    reseed: dict[str, Any] = {"determinism": "seeded", "reseed": lambda *_: None}
    stale = [*CASES[:3], {**CASES[3], "expected_reward": 0.25}]
    write(path, stale)
    path.chmod(0o640)
    with pytest.raises(VerifierFixtureError, match=r"Case 'twice' reward mismatch: expected 0.25, observed 0.5"):
        exercise(path, **reseed)
    exercise(path, update_expected=True, **reseed)
    assert [json.loads(line) for line in path.read_text().splitlines()] == CASES
    assert path.stat().st_mode & 0o777 == 0o640
    before = write(path, [{**stale[0], "request": {"reply": "41"}}, *stale[1:]]).read_bytes()
    with pytest.raises(VerifierFixtureError, match="does not pin"):
        exercise(path, update_expected=True, **reseed)
    assert path.read_bytes() == before


def test_a_link_is_not_replaced(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(write(path, [*CASES[:3], {**CASES[3], "expected_reward": 0.25}]))
    with pytest.raises(VerifierFixtureError, match="Refusing to replace"):
        exercise(link, update_expected=True, determinism="seeded", reseed=lambda *_: None)
