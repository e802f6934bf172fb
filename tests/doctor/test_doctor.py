"""Doctor's parts: rules, ranking, the scheduler's words, logs, the schema diff, and how the answer is printed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gymnast.builtin.resources_servers.mcqa.app import MCQATask
from gymnast.doctor.examine import Target, examine, find_target
from gymnast.doctor.read_logs import read_logs
from gymnast.doctor.rules.kind_table import TABLE
from gymnast.doctor.rules.registry import RULES
from gymnast.doctor.scheduler import parse_sacct, parse_scontrol, read_job
from gymnast.doctor.schema_diff import compare, parse_refusal
from gymnast.doctor.signatures import SIGNATURES
from gymnast.types.failure import KINDS
from tests.doctor.lab import FOREIGN, RIGHT, Lab, error, install
from tests.doctor.lines import LINES

ONE = ("--max-attempts", "1")
LOGS = Path(__file__).parent / "logs"
RULES_PAGE = Path(__file__).parents[2] / "docs" / "debugging" / "rules.md"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


# --- rules -----------------------------------------------------------------------------------------------------------


def test_a_log_in_utf_16_is_read(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    lines = "service : starting\nModuleNotFoundError: No module named 'stock'\n"
    log.write_bytes(lines.encode("utf-16"))
    for target in (log, tmp_path):
        (first, *_) = examine(find_target(target)).findings
        assert first.id == "module_missing"


def test_every_kind_of_failure_has_a_rule() -> None:
    assert KINDS.keys() <= {kind for row in TABLE for kind in row.kinds}


def test_every_rule_is_explained() -> None:
    text = RULES_PAGE.read_text()
    missing = {rule.id for rule in RULES if f"### {rule.id}\n" not in text}
    assert not missing


def test_every_signature_has_its_lines() -> None:
    assert LINES.keys() == SIGNATURES.keys()


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in LINES.items() for line in lines])
def test_lines_of_a_signature_are_found_in_a_log(name: str, line: str, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"fine\n{line}\nfine\n")
    assert name in read_logs([log]).hits


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_answer_for_people(lab: Lab) -> None:
    lab.collect(error(401, {"error": "bad key"}))
    code, out, _ = lab.gymnast("doctor", "x.jsonl", "--steps")
    assert code == 1
    assert "1. [config] the endpoint" in out
    for word in ("cause:", "next:", "confidence:", "evidence:", "x_failures.jsonl:1"):
        assert word in out
    assert re.search(r"rollouts \d:\d", out), "which of them is first is chance"
    assert [line[0] for line in out.splitlines()[:40] if line[:2] in {f"{n} " for n in range(1, 9)}] == list("12345678")


def test_nothing_is_changed(lab: Lab) -> None:
    lab.collect(error(500), "--max-attempts", "1")
    before = {path: path.stat().st_mtime_ns for path in lab.folder.rglob("*")}
    lab.doctor("x.jsonl")
    assert {path: path.stat().st_mtime_ns for path in lab.folder.rglob("*")} == before


@pytest.mark.parametrize("arguments", [(), ("no_such_run.jsonl",)])
def test_nothing_to_look_at_is_a_usage_error(lab: Lab, arguments: tuple[str, ...]) -> None:
    assert lab.gymnast("doctor", *arguments)[0] == 2


def test_a_dataset_is_not_taken_for_a_run(lab: Lab) -> None:
    code, _, err = lab.gymnast("doctor", "tasks.jsonl")
    assert code == 2
    assert "gymnast check rows" in err


def test_logs_of_installed_packages_are_left_alone(lab: Lab) -> None:
    for name in (".venv/lib/a.txt", "node_modules/a/a.log", "kept/a.log"):
        (lab.folder / name).parent.mkdir(parents=True)
        (lab.folder / name).write_text("OSError: [Errno 28] No space left on device\n")
    _, report = lab.doctor(str(lab.folder))
    assert report["findings"][0]["evidence"][0]["file"].endswith("kept/a.log")
    assert report["findings"][0]["evidence"][0]["count"] == 1


def test_consequences_follow_their_cause_and_losses_are_counted_once(lab: Lab) -> None:
    lab.collect(lambda n, _: error(429, {}, retry_after="0") if n % 2 else error(401, {"error": "key"}), *ONE)
    _, report = lab.doctor("x.jsonl")
    causes = [finding for finding in report["findings"] if not finding["follows"]]
    assert sum(finding["rollouts_lost"] for finding in causes) == report["counts"]["lost"] == 6
    assert "fewer_than_requested" not in {finding["id"] for finding in report["findings"]}


# --- one task --------------------------------------------------------------------------------------------------------


def test_what_happened_to_a_task(lab: Lab) -> None:
    install(lab.folder)
    lab.rows(3, trouble="verify")
    lab.collect(RIGHT, "-n", "2", "--max-attempts", "2", environment="lab")
    code, out, _ = lab.gymnast("doctor", "x.jsonl", "--task", "1")
    assert code == 1
    assert "prompt: Question 1" in out
    assert out.count("attempt 1") == out.count("attempt 2") == 2
    for said in (
        "1:0 failed after 2",
        "1:1 failed after 2",
        "x_failures.jsonl:",
        "lab/verify 500",
        "KeyError",
        "next: ",
    ):
        assert said in out
    assert not re.search(r"^\s*0:0 ", out, re.MULTILINE)
    code, out, _ = lab.gymnast("doctor", "x.jsonl", "--task", "1", "--rollout", "0", "--json")
    story = json.loads(out)
    assert [one["key"] for one in story["rollouts"]] == ["1:0"]
    assert story["findings"][0]["id"] == "verifier_exception"
    assert story["rollouts"][0]["attempts"][1]["attempt"] == 1


def test_a_task_that_went_well_and_one_that_is_owed(lab: Lab) -> None:
    lab.collect(RIGHT, "--max-tokens", "60", "--concurrency", "1")
    code, out, _ = lab.gymnast("doctor", "x.jsonl", "--task", "0")
    assert (code, "0:0 scored 1" in out, "expected_answer='A'" in out) == (0, True, True)
    code, out, _ = lab.gymnast("doctor", "x.jsonl", "--task", "5")
    assert (code, "5:0 owed" in out, "--resume" in out) == (1, True, True)


@pytest.mark.parametrize("arguments", [("--task", "99"), ("--rollout", "1")])
def test_a_task_that_is_not_there(lab: Lab, arguments: tuple[str, ...]) -> None:
    lab.collect(RIGHT)
    assert lab.gymnast("doctor", "x.jsonl", *arguments)[0] == 2


@pytest.mark.parametrize("arguments", [("empty",), ("--job", "999999999")])
def test_where_there_is_nothing_nothing_is_called_healthy(lab: Lab, arguments: tuple[str, ...]) -> None:
    (lab.folder / "empty").mkdir()
    code, out, err = lab.gymnast("doctor", *arguments)
    assert (code, out) == (2, ""), err


def test_a_row_that_is_refused_is_shown_field_by_field(lab: Lab) -> None:
    lab.rows(6, grading_mode="by_feeling")
    lab.collect_as_ng(RIGHT)
    _, report = lab.doctor("x.jsonl")
    shown = [seen["what"] for seen in report["findings"][0]["evidence"]]
    assert any("grading_mode: expected" in said and '"by_feeling"' in said for said in shown), shown


def test_the_first_real_exception_is_quoted_with_its_place(lab: Lab) -> None:
    install(lab.folder)
    lab.rows(6, trouble="verify")
    lab.collect(RIGHT, "--max-attempts", "1", environment="lab")
    _, report = lab.doctor("x.jsonl")
    first = report["findings"][0]
    (seen,) = [seen for seen in first["evidence"] if seen["what"].startswith("first real exception")]
    assert seen["quote"] == "KeyError: 'no grader for this row'"
    assert seen["file"].endswith("x_logs/lab.log")
    assert "app.py" in seen["what"]
    assert any(said.startswith("model_serving") for said in first["ruled_out"]) or not report["counts"]["scored"]


def test_a_lost_body_is_looked_for_at_the_boundaries(lab: Lab) -> None:
    install(lab.folder, FOREIGN)
    lab.rows(2, target=3)
    lab.collect(RIGHT, "--max-attempts", "1", "++global_aiohttp_client_request_debug=True", environment="lab")
    _, report = lab.doctor("x.jsonl")
    first = report["findings"][0]
    assert first["id"] == "inner_500_no_body"
    (seen,) = [seen for seen in first["evidence"] if "boundary" in seen["what"]]
    assert "to=lab POST /verify" in seen["quote"]


def test_keys_are_not_quoted(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("connection refused, sent authorization: Bearer sk-very-secret-key-0123456789\n")
    quote = read_logs([log]).hits["endpoint_down"].first.text
    assert "refused" in quote
    assert "very-secret" not in quote


def test_a_key_that_an_endpoint_repeats_is_nowhere(lab: Lab) -> None:
    key = "zq17be02c4d1a9f3"
    said = {"error": {"message": f"Incorrect API key provided: {key}", "sent": f"Bearer {key}"}}
    lab.collect(error(401, said), f"++policy_api_key={key}")
    for arguments in (("doctor", "x.jsonl"), ("doctor", "x.jsonl", "--task", "0")):
        assert key not in lab.gymnast(*arguments)[1]
    assert not [path for path in lab.folder.glob("x*") if path.is_file() and key in path.read_text()]


def test_a_folder_of_several_runs_wants_a_name(lab: Lab) -> None:
    for name in ("a", "b"):
        (lab.folder / f"{name}_materialized_inputs.jsonl").write_text("")
    code, _, err = lab.gymnast("doctor", str(lab.folder))
    assert code == 2
    assert "a.jsonl, " in err
    assert "b.jsonl" in err


def test_what_is_healthy_is_reported(lab: Lab) -> None:
    lab.collect(RIGHT)
    code, out, _ = lab.gymnast("doctor", "x.jsonl")
    assert code == 0
    assert "healthy: nothing to change" in out


# --- schema ----------------------------------------------------------------------------------------------------------


def test_a_row_is_compared_field_by_field() -> None:
    found = {one.field: one for one in compare({"expected_answer": 7, "grading_mode": "by_feeling"}, MCQATask)}
    assert "valid string" in found["expected_answer"].problem
    assert found["grading_mode"].actual == '"by_feeling"'
    assert not found["options"].problem
    assert "optional" in found["options"].expected


@pytest.mark.parametrize(
    "body",
    [
        '{"detail":[{"type":"missing","loc":["body","target"],"msg":"Field required","input":{}}]}',
        "422: [{'type': 'missing', 'loc': ('body', 'target'), 'msg': 'Field required', 'input': {}}]",
    ],
)
def test_a_refusal_names_its_fields(body: str) -> None:
    (only,) = parse_refusal(body)
    assert (only.field, only.actual, only.problem) == ("target", "nothing", "Field required")


@given(st.text())
def test_any_body_can_be_read(body: str) -> None:
    parse_refusal(body)


# --- logs ------------------------------------------------------------------------------------------------------------


def test_tracebacks_end_with_their_exception_whatever_stands_in_front_of_them(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    front = "(EngineCore pid=7) ERROR 01-01 10:00:00 [core.py:1] "
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        "    x()",
        "ValueError: no such block",
    ]
    log.write_text("".join(front + line + "\n" for line in lines))
    (found,) = read_logs([log]).exceptions
    assert (found.type, found.message, found.frame) == ("ValueError", "no such block", "a.py:3 in f")
    assert found.end.line == 4


def test_what_comes_after_a_sigterm_is_noise(tmp_path: Path) -> None:
    log = tmp_path / "env.log"
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n{}\n'
    log.write_text(trace.format("KeyError: 'a'") + "Received SIGTERM\n" + trace.format("RuntimeError: loop is closed"))
    assert [found.type for found in read_logs([log]).real_exceptions] == ["KeyError"]


def test_a_log_without_a_last_newline_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("fine\nOSError: [Errno 28] No space left on device")
    facts = read_logs([log, tmp_path / "missing.log"])
    assert facts.hits["disk_full"].first.line == 2
    assert len(facts.unreadable) == 1


@given(st.binary(max_size=400))
@example(b"\xfe\xff")
@example(b"\xff\xfeE\0")
def test_any_log_can_be_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    log = tmp_path_factory.getbasetemp() / "any.log"
    log.write_bytes(data)
    facts = read_logs([log])
    assert (facts.files, facts.unreadable) == ([str(log)], [])


# --- the scheduler ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "state", "cause"),
    [
        ("timeout", "TIMEOUT", "time_limit"),
        ("cancelled", "CANCELLED", "job_cancelled"),
        ("pending", "PENDING", "job_pending"),
    ],
)
def test_what_slurm_says_of_a_job(
    name: str, state: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts are what Slurm printed; a command of that name prints them again."""
    tool = tmp_path / "scontrol"
    tool.write_text(f"#!/bin/sh\ncat {LOGS / f'scontrol_{name}.txt'}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    job = read_job("4")
    assert job is not None
    assert job.state == state
    assert examine(Target(job="4")).findings[0].id == cause


def test_accounting_is_asked_where_the_job_is_forgotten() -> None:
    def run(command: Sequence[str]) -> str | None:
        message = "7|FAILED|0:9|||00:10|01:00|n0\n7.0|OUT_OF_MEMORY|0:125|3999M|4G|00:10||n0\n"
        return message if command[0] == "sacct" else None

    job = read_job("7", run)
    assert job is not None
    assert (job.state, job.source) == ("OUT_OF_MEMORY", "sacct")
    assert parse_sacct("7", "7|COMPLETED|0:0|||00:10|01:00|n0").state == "COMPLETED"


def test_accounting_is_asked_for_what_is_forgotten_of_an_array() -> None:
    """One element still runs; another failed an hour ago."""
    running = "JobId=9 ArrayJobId=7 ArrayTaskId=2 JobName=x\n   JobState=RUNNING Reason=None ExitCode=0:0\n"
    recorded = "7_1|FAILED|3:0|||00:10|01:00|n0\n7_1.batch|FAILED|3:0|||00:10||n0\n7_2|RUNNING|0:0|||00:10|01:00|n0\n"
    requests: list[str] = []

    def run(command: Sequence[str]) -> str | None:
        requests.append(command[0])
        return {"scontrol": running, "sacct": recorded}[command[0]]

    job = read_job("7", run)
    assert job is not None
    assert (job.id, job.state, job.exit_code, job.source) == ("7_1", "FAILED", "3:0", "sacct")
    requests.clear()
    job = read_job("7_2", run)
    assert job is not None
    assert (job.state, requests) == ("RUNNING", ["scontrol"])


def test_a_job_id_that_is_none_is_not_passed_on() -> None:
    def run(command: Sequence[str]) -> str | None:
        raise AssertionError(command)

    assert read_job("7; rm -rf /", run) is None


def test_the_worst_task_of_an_array_counts() -> None:
    task = "JobId={0} ArrayJobId=7 ArrayTaskId={1}\n   JobState={2} Reason=None ExitCode={3}\n   StdOut=/x/{0}.out"
    told = "\n\n".join((task.format(9, 2, "COMPLETED", "0:0"), task.format(8, 1, "FAILED", "3:0")))
    found = parse_scontrol("7", told)
    assert (found.id, found.state, found.exit_code) == ("7_1", "FAILED", "3:0")
