"""How doctor finds the line that says why, names its class, and leaves alone what only follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymnast.doctor.examine import examine, find_target
from gymnast.doctor.label_check import label_check
from gymnast.doctor.line_roles import Role, advice_in, headline_of, role_of
from gymnast.doctor.log_files import find_logs
from gymnast.doctor.read_logs import read_logs
from gymnast.doctor.system_errors import classify
from gymnast.doctor.transcripts import Rollout


def first_finding(folder: Path, **logs: str) -> dict[str, Any]:
    for name, text in logs.items():
        (folder / f"{name}.log").write_text(text)
    finding: dict[str, Any] = examine(find_target(folder)).as_json()["findings"][0]
    return finding


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("boot: open /var/lib/x/state.db: permission denied", "permission"),
        ("write /scratch/a: disk quota exceeded", "disk_full"),
        ("sandbox-1 exited with exit code 137", "process_killed"),
        ("worker-2 exited with code 139", "process_crashed"),
        ("reward server ended, exit code 127", "command_missing"),
        ("dial tcp 10.1.2.3:9000: i/o timeout", "unreachable"),
        ("x509: certificate has expired", "tls"),
        ("FATAL: password authentication failed for user rl", "access_denied"),
        ("job killed: walltime 7213 exceeded limit 7200", "time_limit"),
        ("spot instance will be terminated in 120 seconds", "preempted"),
        ("SHARD: unbound variable", "variable_unset"),
        ("shard 4 is sealed", None),
    ],
)
def test_a_failure_is_classified_by_words_that_programs_share(message: str, kind: str | None) -> None:
    assert classify(message) == kind


def test_a_line_about_an_end_is_no_cause_unless_it_goes_on_to_say_why() -> None:
    assert role_of("Worker proc VllmWorker-3 died unexpectedly", is_cause=False) is Role.END
    assert role_of("EngineCore failed to start.", is_cause=False) >= Role.ANNOUNCEMENT
    assert role_of("helper exited with status 1: fuse: device not found", is_cause=False) is Role.REPORT


def test_a_headline_has_no_time_level_or_process() -> None:
    assert headline_of("(EngineCore pid=7) ERROR 11-02 09:15:40 [core.py:586] ValueError: no") == "ValueError: no"
    assert headline_of('time="2026-11-10T10:00:01Z" level=fatal msg="store is sealed"') == "store is sealed"


def test_a_line_that_advises_is_quoted_in_the_next_step() -> None:
    assert advice_in("ERROR cache is too small. Try increasing the block size") == "Try increasing the block size"
    assert not advice_in("ERROR cache is too small")


def test_the_cause_in_one_log_comes_before_what_another_log_notices_later(tmp_path: Path) -> None:
    finding = first_finding(
        tmp_path,
        client="2026-11-10 10:00:09 ERROR Server disconnected\n2026-11-10 10:00:10 ERROR Connection refused\n",
        kern="Nov 10 10:00:08 n3 kernel: Out of memory: Killed process 4711 (python) total-vm:9kB\n",
    )
    assert finding["id"] == "oom_kill"


def test_the_innermost_cause_of_a_chain_is_named(tmp_path: Path) -> None:
    cause = "Caused by: java.io.IOException: No space left on device\n"
    log = f"ERROR job failed\njava.lang.RuntimeException: shuffle failed\n{cause}"
    assert first_finding(tmp_path, run=log)["id"] == "disk_full"


def test_an_access_log_is_read_by_its_statuses_not_by_the_words_of_clients(tmp_path: Path) -> None:
    line = '10.0.0.1 - - [15/Nov/2026:10:00:15 +0000] "{}" {} 153 "-" "x"\n'
    healthy = line.format("GET /login?error=500&exception=failed HTTP/1.1", 404) + line.format("GET / HTTP/1.1", 200)
    (tmp_path / "ok.log").write_text(healthy)
    assert examine(find_target(tmp_path / "ok.log")).is_healthy
    refused = (
        line.format("POST /v1/responses HTTP/1.1", 503) * 30 + line.format("POST /v1/responses HTTP/1.1", 200) * 20
    )
    (tmp_path / "bad.log").write_text(refused)
    finding = examine(find_target(tmp_path / "bad.log")).findings[0]
    assert "30 of 50 requests were answered with status 503" in finding.symptom


def test_a_warning_is_a_cause_only_if_something_failed_soon_afterwards(tmp_path: Path) -> None:
    warning = "2026-11-10 10:00:00 WARNING certificate verify failed, trying again\n"
    (tmp_path / "ok.log").write_text(warning + "2026-11-10 10:00:01 INFO done\n")
    assert examine(find_target(tmp_path / "ok.log")).is_healthy
    finding = first_finding(tmp_path, bad=warning + "2026-11-10 10:00:02 ERROR no package for sympy\n")
    assert finding["id"] == "tls"


def test_words_of_failure_do_not_count_in_a_log_that_ends_well(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("cannot find the optional plugin\nstep 1\nall done\n")
    assert examine(find_target(tmp_path / "a.log")).is_healthy


def test_logs_are_found_whatever_they_are_called(tmp_path: Path) -> None:
    for name in ("stdout", "train.o551", "journal.kubelet", "server.nohup"):
        (tmp_path / name).write_text("text\n")
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "weights").write_bytes(b"\0\1\n")
    assert [path.name for path in find_logs(tmp_path)] == ["journal.kubelet", "server.nohup", "stdout", "train.o551"]


def test_an_unset_variable_is_told_from_a_fault_in_the_code(tmp_path: Path) -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "/w/main.py", line 9, in <module>\n    CACHE = os.environ["HF_HOME"]\n'
        '  File "<frozen os>", line 685, in __getitem__\n'
        "KeyError: 'HF_HOME'\n"
    )
    assert first_finding(tmp_path, run=log)["id"] == "variable_unset"


def rollout(task: int, answer: str, expected: str) -> Rollout:
    row = {"expected_answer": expected, "responses_create_params": {"input": "q"}}
    return Rollout({**row, "_ng_task_index": task, "_ng_rollout_index": 0, "extracted_answer": answer}, row)


def test_labels_that_belong_to_the_next_row_are_noticed() -> None:
    right = ["A", "B", "C", "A", "D", "B", "C", "D", "A", "C"]
    shifted = [rollout(task, right[task], right[task - 1]) for task in range(len(right))]
    check = label_check(shifted)
    assert check.verdict.value == "failed"
    assert "+1" in check.detail
    mixed = [rollout(task, "AABBCCDDAB"[task], right[task]) for task in range(len(right))]
    assert label_check(mixed).verdict.value == "passed"


def told(task: int, text: str, expected: str) -> Rollout:
    row = {"expected_answer": expected, "responses_create_params": {"input": f"Which river crosses town {task}?"}}
    output = [{"type": "message", "content": text}]
    record = {**row, "_ng_task_index": task, "_ng_rollout_index": 0, "response": {"output": output}}
    return Rollout(record, row)


RIVERS = ("Rhine", "Loire", "Volga", "Tagus", "Douro", "Neva", "Seine", "Oder", "Drava")


def test_texts_that_name_the_labels_of_other_rows_are_noticed_without_an_extracted_answer() -> None:
    shifted = [told(task, f"I think it is the {RIVERS[task]}.", RIVERS[task - 4]) for task in range(len(RIVERS))]
    assert label_check(shifted).verdict.value == "failed"
    weak = [told(task, "Perhaps the Amazon, or the Nile.", river) for task, river in enumerate(RIVERS)]
    assert label_check(weak).verdict.value == "passed"
    letters = [told(task, "It is A, not B.", "CDAB"[task % 4]) for task in range(len(RIVERS))]
    assert label_check(letters).verdict.value == "not made"


def test_what_the_collector_prints_about_a_record_is_not_evidence_of_its_own(tmp_path: Path) -> None:
    """An attempt that met the closed port of a killed environment was blamed on the policy's endpoint."""
    log = tmp_path / "x-1.err"
    log.write_text(
        "failed 0:1 environment_unreachable at verify: mcqa gave no answer to /verify: "
        "cannot connect to 127.0.0.1:4100: Connection refused\n"
        "failed 0:2 instance_died at seed (will be retried): cannot connect to 127.0.0.1:4100: Connection refused\n"
    )
    assert "endpoint_down" in read_logs([log]).hits
    assert not read_logs([log], has_records=True).hits
    log.write_text(log.read_text() + "ERROR judge: cannot connect to 127.0.0.1:9: Connection refused\n")
    assert read_logs([log], has_records=True).hits["endpoint_down"].first.line == 3
