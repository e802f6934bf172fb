"""Doctor on what is running: stuck rollouts with their stacks, full load that is no fault, dead serves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.harness import Collection, Tasks, collecting, policy_running
from tests.doctor.experiments import closed_port
from tests.doctor.lab import Lab
from tests.support import DEMO_POLICY, serving

TASKS = Tasks(20, 2)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


@pytest.fixture
def hanging(lab: Lab) -> Iterator[Collection]:
    """A collection whose endpoint never answers."""
    with (
        policy_running("--fault", "hang=1.0") as policy,
        collecting(lab.folder, TASKS, policy.url, "--concurrency", "3") as collection,
    ):
        collection.start()
        _wait_for(lab.folder / "x.sock")
        time.sleep(0.5)
        yield collection
        collection.kill()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_stuck_is_named_with_its_stage_endpoint_and_stack(lab: Lab, hanging: Collection) -> None:
    code, report = lab.doctor("x.jsonl", "--live", "--stuck-after", "0.2")
    assert code == 1
    first = report["findings"][0]
    assert (first["id"], first["layer"]) == ("stuck", "model_serving")
    assert "policy_model" in first["symptom"]
    assert len(report["stuck"]) == 3
    frames: list[str] = report["stuck"][0]["frames"]
    assert frames[0].endswith("in _one")
    assert any("upstream" in frame for frame in frames), frames


def test_a_run_that_only_just_began_is_not_blamed(lab: Lab, hanging: Collection) -> None:
    code, report = lab.doctor("x.jsonl", "--live")
    assert (code, report["healthy"]) == (0, True), report["findings"]


def test_full_load_is_no_fault(lab: Lab) -> None:
    with (
        policy_running("--slow-s", "0.1") as policy,
        collecting(lab.folder, TASKS, policy.url, "--concurrency", "2") as collection,
    ):
        collection.start()
        _wait_for(lab.folder / "x.sock")
        time.sleep(0.7)
        code, report = lab.doctor("x.jsonl", "--live")
        collection.kill()
    assert code == 0, report["findings"]
    assert "saturated" in {note["id"] for note in report["notes"]}


def test_a_run_that_is_gone_is_looked_at_by_its_files(lab: Lab) -> None:
    from tests.doctor.lab import RIGHT

    lab.collect(RIGHT)
    assert lab.doctor("x.jsonl", "--live")[0] == 0


@pytest.mark.usefixtures("own_registry")
def test_a_serve_that_answers_is_healthy(lab: Lab) -> None:
    with serving(lab.folder, "-c", DEMO_POLICY) as served:
        code, report = lab.doctor("--head", served.head)
    assert code == 0, report["findings"]
    assert any("policy_model" in said for said in _saw(report, 3))


def test_a_serve_that_does_not_answer(lab: Lab) -> None:
    code, report = lab.doctor("--head", f"http://127.0.0.1:{closed_port()}")
    assert code == 1
    assert report["findings"][0]["id"] == "servers_down"


def test_a_probe_names_the_models_that_are_served(lab: Lab) -> None:
    from tests.doctor.lab import endpoint, error

    with endpoint(lambda _, __: error(404, {"error": "no such model"})) as url:
        lab.collect_at(url)
        _, report = lab.doctor("x.jsonl", "--probe")
    first = report["findings"][0]
    assert first["id"] == "model_name_wrong"
    assert "(lab)" in first["next"]


def _saw(report: dict[str, Any], number: int) -> list[str]:
    saw: list[str] = report["steps"][number - 1]["saw"]
    return saw
