"""The fault laboratory: doctor's first answer is right for every fault, and a healthy run is never blamed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doctor.component_faults import COMPONENT_FAULTS
from tests.doctor.faults import FAULTS, Fault
from tests.doctor.healthy import HEALTHY, Healthy
from tests.doctor.lab import Lab


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path)
    with lab.endings:
        yield lab


@pytest.mark.parametrize("fault", [*FAULTS, *COMPONENT_FAULTS], ids=lambda fault: fault.name)
def test_the_first_answer_is_right(lab: Lab, fault: Fault) -> None:
    code, report = lab.doctor(*fault.make(lab))
    assert report["findings"], (report["steps"], lab.said)
    first = report["findings"][0]
    told = [(finding["id"], finding["rollouts_lost"]) for finding in report["findings"]], lab.said[-600:]
    assert first["id"] == fault.cause, told
    assert first["layer"] == fault.layer.value, told
    assert fault.next in first["next"], first["next"]
    assert code == 1
    assert first["evidence"], "a finding without evidence is a guess"
    assert first["next"]


@pytest.mark.parametrize("healthy", HEALTHY, ids=lambda healthy: healthy.name)
def test_a_healthy_run_is_not_blamed(lab: Lab, healthy: Healthy) -> None:
    code, report = lab.doctor(*healthy.make(lab))
    told = [(finding["id"], finding["symptom"]) for finding in report["findings"]]
    assert report["healthy"], told
    assert code == 0
    if healthy.note:
        assert healthy.note in {note["id"] for note in report["notes"]}, report["notes"]


def test_the_laboratory_is_large_enough() -> None:
    assert len(FAULTS) >= 30
    assert len(HEALTHY) >= 10
    assert "unclassified" not in {fault.cause for fault in FAULTS}
