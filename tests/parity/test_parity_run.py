"""Whole comparisons, with our own server in a second process in the place of the original."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.parity import stand_in
from tests.parity.results import Results, as_table
from tests.parity.run import Plan, replay, run

COUNT = 30


def make_plan(checkout: Path, environment: str) -> Plan:
    return Plan(checkout, sys.executable, [environment], 30, 11, 600, COUNT, Path(stand_in.__file__))


@pytest.mark.parametrize("environment", ["ruler", "blackjack", "genrm_compare", "equivalence_llm_judge"])
async def test_the_same_server_twice_never_differs(tmp_path: Path, environment: str) -> None:
    results, lines = Results(), list[str]()
    await run(make_plan(tmp_path, environment), results, lambda: None, lines.append)
    tally = results.tally(environment)
    assert (tally.next, tally.different, tally.by_design) == (COUNT, 0, {})
    assert tally.equal > 0
    assert environment in as_table(results)
    assert environment in lines[0]


async def test_a_wrong_server_is_found_out_and_its_replay_shows_when_it_is_right(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    plan, results = make_plan(tmp_path, "ruler"), Results()
    await run(plan, results, lambda: None, lambda _: None)
    assert results.tally("ruler").different == len(results.differences) > 0
    fields = {name.rpartition(".")[2]: value for one in results.differences for name, value in one.fields.items()}
    assert fields == {"reward": (0.5, 1.0)}
    assert await replay(plan, results, lambda _: None) == results.differences
    (tmp_path / "broken").unlink()
    assert await replay(plan, results, lambda _: None) == []
