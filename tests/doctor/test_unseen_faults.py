"""Faults that no rule was written for: logs of other programs, equal rewards, unknown failures, quoted user data.

A first answer may be honest about what it does not know. It may never be wrong with high confidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gymnast.doctor.examine import examine, find_target
from tests.doctor.constant_rewards import CASES
from tests.doctor.odd_but_healthy import ODD
from tests.doctor.quoted import ALL, BLAMED, Quoted
from tests.doctor.synthetic import Case, LogCase, read_logs_of

CORPUS = Path(__file__).parent / "corpus"
LOGS = list(read_logs_of(CORPUS / "logs.txt"))
UNKNOWN = list(read_logs_of(CORPUS / "unknown.txt"))
HONEST = 12
"""Logs to which doctor may answer that it does not know."""


def diagnose(make: Callable[[Path], tuple[str, ...]], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    return examine(find_target(Path(make(folder)[0]))).as_json()


def quotes(finding: dict[str, Any]) -> str:
    return " ".join(str(evidence.get("quote", "")) for evidence in finding["evidence"])


def is_right(case: LogCase, finding: dict[str, Any]) -> bool:
    says = re.search(case.next, f"{finding['symptom']} {finding['next']}")
    return case.cause in quotes(finding) and finding["layer"] in case.layers and says is not None


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case.name)
def test_a_log_of_another_program_is_never_healthy_and_never_answered_wrongly(
    case: LogCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = diagnose(case.make, tmp_path, monkeypatch)
    assert not report["healthy"]
    first = report["findings"][0]
    assert is_right(case, first) or first["confidence"] == "low" or first["layer"] in case.layers, (
        first["id"],
        first["symptom"],
        quotes(first),
    )


def test_nearly_all_logs_are_answered_rightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for number, case in enumerate(LOGS):
        folder = tmp_path / str(number)
        folder.mkdir()
        if not is_right(case, diagnose(case.make, folder, monkeypatch)["findings"][0]):
            wrong.append(case.name)
    assert len(wrong) <= HONEST, wrong


@pytest.mark.parametrize("case", UNKNOWN, ids=lambda case: case.name)
def test_what_is_unknown_is_said_to_be_unknown(case: LogCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = diagnose(case.make, tmp_path, monkeypatch)
    first = report["findings"][0]
    assert first["confidence"] == "low"
    assert re.search("does not (?:recognize|understand)", first["symptom"])
    assert case.cause in quotes(first)
    assert first["next"].count("sed -n") + first["next"].count("tail -n") == 1
    assert "gymnast doctor RUN --logs" in first["next"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equal_rewards_are_explained(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = diagnose(case.make, tmp_path, monkeypatch)
    assert report["findings"], report["notes"]
    first = report["findings"][0]
    assert re.search(case.says, f"{first['symptom']} {first['cause']} {first['next']}"), first
    assert first["layer"] in case.layers
    assert first["evidence"]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_quoted_user_data_is_evidence_of_nothing(case: Quoted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = diagnose(case.make, tmp_path, monkeypatch)
    ids = [finding["id"] for finding in report["findings"]]
    assert ids[:1] == list(case.first) if case.first else report["healthy"], ids
    assert not BLAMED & set(ids)


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_but_healthy_is_not_blamed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = diagnose(ODD[name], tmp_path, monkeypatch)
    assert report["healthy"], [(finding["id"], finding["symptom"]) for finding in report["findings"]]


def test_a_layer_is_ruled_out_only_by_a_named_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makers = [case.make for case in ALL[:12]] + [case.make for case in CASES[:3]]
    for number, make in enumerate(makers):
        folder = tmp_path / str(number)
        folder.mkdir()
        for finding in diagnose(make, folder, monkeypatch)["findings"]:
            assert all("(checked: " in reason for reason in finding["ruled_out"]), finding["ruled_out"]
