"""What doctor says about logs of other programs: faults that no rule is about, and logs that look odd and are fine.

The logs are in tests/doctor/corpus/outcomes.txt: `@@ name @ layers @ the line that says why @ what the answer says
@ what it must not say @ file`, then the log. `@×N START text` repeats a line with other numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gymnast.doctor.examine import examine, find_target
from gymnast.doctor.log_files import BLOCK_BYTES
from gymnast.doctor.outcomes import count_work

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPUS = Path(__file__).parents[1] / "doctor" / "corpus" / "outcomes.txt"
HEALTHY = "healthy"
WORK = "2026-06-11 09:{m:02d}:{s:02d},120 INFO collector: rollout {i} finished reward=0.5"
OK = 'INFO:     10.4.0.7:{p} - "POST /v1/chat/completions HTTP/1.1" 200 OK'


@dataclass(frozen=True)
class Case:
    name: str
    layers: list[str]
    line: str
    says: str
    never: str
    file: str
    log: str


def repeat(text: str, count: int, start: int = 0) -> str:
    return "".join(
        text.format(i=i, s=i % 60, m=i // 60 % 60, p=40000 + i * 7 % 9999) + "\n" for i in range(start, start + count)
    )


def expand(line: str) -> str:
    match = re.fullmatch(r"@×(\d+) (\d+) (.*)\n", line)
    return repeat(match[3], int(match[1]), int(match[2])) if match is not None else line


def read_cases() -> Iterator[Case]:
    for part in CORPUS.read_text(encoding="utf-8").split("@@ ")[1:]:
        head, _, log = part.partition("\n")
        name, layers, *rest = (field.strip() for field in head.split(" @"))
        line, says, never, file = rest
        text = "".join(expand(line) for line in log.splitlines(keepends=True))
        yield Case(name, layers.split(), line, says, never, file, text)


CASES = list(read_cases())


def diagnose(folder: Path, log: str | bytes, name: str = "out.log") -> dict[str, Any]:
    path = folder / name
    path.write_bytes(log if isinstance(log, bytes) else log.encode())
    return examine(find_target(path)).as_json()


@pytest.mark.parametrize("case", [case for case in CASES if case.layers != [HEALTHY]], ids=lambda case: case.name)
def test_a_fault_without_a_rule_gets_its_layer_and_the_line_that_says_why(case: Case, tmp_path: Path) -> None:
    findings = diagnose(tmp_path, case.log, case.file)["findings"]
    assert findings, "not noticed"
    first = findings[0]
    answer = f"{first['symptom']} {first['cause']} {first['next']}"
    shown = " ".join(f"{evidence.get('quote') or ''} {evidence['what']}" for evidence in first["evidence"])
    assert first["layer"] in case.layers
    assert re.search(case.line, f"{answer} {shown}")
    assert re.search(case.says, answer, re.IGNORECASE)
    assert not case.never or not re.search(case.never, answer, re.IGNORECASE)


@pytest.mark.parametrize("case", [case for case in CASES if case.layers == [HEALTHY]], ids=lambda case: case.name)
def test_a_log_that_is_odd_and_fine_raises_no_alarm(case: Case, tmp_path: Path) -> None:
    report = diagnose(tmp_path, case.log, case.file)
    assert report["healthy"], [finding["symptom"] for finding in report["findings"]]


def test_an_error_that_work_followed_is_a_note(tmp_path: Path) -> None:
    log = repeat(WORK, 20) + "ERROR client: connection refused by http://10.0.0.5:8000\n" + repeat(WORK, 60, 20)
    report = diagnose(tmp_path, log)
    assert report["healthy"]
    assert [note["id"] for note in report["notes"]] == ["errors_overcome"]
    assert "out.log:21" in report["notes"][0]["text"]


def test_the_same_error_at_the_end_is_a_fault(tmp_path: Path) -> None:
    log = repeat(WORK, 60) + "ERROR client: connection refused by http://10.0.0.5:8000\n"
    assert diagnose(tmp_path, log)["findings"][0]["id"] == "endpoint_down"


def test_work_of_another_process_does_not_excuse_an_error(tmp_path: Path) -> None:
    log = "db-1  | FATAL: could not open file pg_wal: Input/output error\n" + repeat("web-1  | tick {i}", 60)
    assert diagnose(tmp_path, log)["findings"][0]["layer"] == "infra"


def test_a_fault_of_the_machine_stays_one_unless_the_log_ends_well(tmp_path: Path) -> None:
    log = "Memory cgroup out of memory: Killed process 811 (python3)\n" + repeat(WORK, 60)
    assert diagnose(tmp_path, log)["findings"][0]["id"] == "oom_kill"
    assert diagnose(tmp_path, log + "all 60 rollouts completed\n")["healthy"]


def test_what_follows_is_seen_across_the_blocks_of_a_file(tmp_path: Path) -> None:
    filler = repeat("tick {i} of the run", 1000)
    filler *= BLOCK_BYTES // len(filler)
    padding = "x" * (BLOCK_BYTES - len(filler) - 60) + "\n"
    error = "ERROR client: connection refused by http://10.0.0.5\n"
    report = diagnose(tmp_path, filler + padding + error + repeat(WORK, 80))
    assert report["healthy"]
    assert report["notes"]


@pytest.mark.parametrize(
    ("line", "is_fault"),
    [
        ("memory.events: oom 0 oom_kill 0", False),
        ("memory.events: oom 2 oom_kill 2", True),
        ("[ERROR] Worker (pid:91) was sent SIGKILL! Perhaps out of memory?", True),
        ("  --on-oom-kill MODE   what to do if a process is killed by the kernel", False),
        ("tip: if you see CUDA out of memory, lower the batch size", False),
    ],
)
def test_only_what_happened_is_evidence(line: str, *, is_fault: bool, tmp_path: Path) -> None:
    report = diagnose(tmp_path, repeat(WORK, 30) + line + "\nbye\n")
    assert report["healthy"] is not is_fault
    if "Perhaps" in line:
        assert report["findings"][0]["id"] == "process_killed"


def test_zero_counts_do_not_hide_others_of_the_same_shape(tmp_path: Path) -> None:
    log = repeat("memory.events: oom_kill 0", 5) + "memory.events: oom_kill 3\n"
    assert diagnose(tmp_path, log)["findings"][0]["id"] == "oom_kill"


@pytest.mark.parametrize(
    "log",
    [
        repeat(WORK, 50) + "2026-06-11 09:01:20,441 INFO collector: rollout 80 fini",
        repeat('{{"ts": "2026-06-11T09:00:{s:02d}Z", "level": "info", "msg": "done {i}"}}', 30) + '{"ts": "2026-06-1',
        repeat(WORK, 50) + "\0" * 64,
    ],
)
def test_a_log_that_breaks_off_is_said_to(log: str, tmp_path: Path) -> None:
    first = diagnose(tmp_path, log)["findings"][0]
    assert first["id"] == "log_breaks_off"
    assert first["confidence"] == "low"
    assert first["cause"].startswith("unknown")


def test_a_complete_last_line_without_a_newline_does_not_break_off(tmp_path: Path) -> None:
    assert diagnose(tmp_path, (repeat(WORK, 50)).rstrip("\n"))["healthy"]


def test_requests_are_judged_by_their_share_and_by_how_they_ended(tmp_path: Path) -> None:
    bad = repeat('INFO:     10.4.0.7:{p} - "POST /v1/completions HTTP/1.1" 503 Service Unavailable', 40)
    finding = diagnose(tmp_path, repeat(OK, 60) + bad)["findings"][0]
    assert finding["id"] == "requests_rejected"
    assert "began after 60 requests without it" in finding["evidence"][1]["what"]
    assert diagnose(tmp_path, repeat(OK, 60) + bad + repeat(OK, 100))["healthy"]


def test_an_access_log_in_json_lines_is_a_log(tmp_path: Path) -> None:
    line = '{{"ts":"2026-06-11T09:00:{s:02d}Z","method":"POST","path":"/v1/messages","status":429}}'
    finding = diagnose(tmp_path, repeat(line, 40), "gateway.jsonl")["findings"][0]
    assert finding["layer"] == "throughput"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("\x1b[31m2026-06-01 08:10:00 ERROR\x1b[0m cannot write a.jsonl: Disk quota exceeded\n", "disk"),
        (
            "start\r\nTraceback (most recent call last):\r\nPermissionError: [Errno 13] Permission denied: 'x'\r\n",
            "denied",
        ),
        ("".join(f"step {i}%\r" for i in range(50)) + "\ntorch.OutOfMemoryError: CUDA out of memory.\n", "memory"),
        ("OSError: [Errno -3] Échec temporaire dans la résolution du nom\n", "DNS|name"),
    ],
)
def test_colors_line_ends_and_languages_do_not_matter(log: str, words: str, tmp_path: Path) -> None:
    first = diagnose(tmp_path, log)["findings"][0]
    assert re.search(words, f"{first['symptom']} {first['cause']}", re.IGNORECASE)


@pytest.mark.parametrize(
    ("text", "is_work"),
    [
        ("step {i} loss 1.2", True),
        (OK, True),
        ("waiting for the server, {i} s", False),
        ('INFO: 10.0.0.1:{p} - "GET /health HTTP/1.1" 200 OK', False),
        ('INFO: 10.0.0.1:{p} - "POST /v1/completions HTTP/1.1" 500 Internal Server Error', False),
        ("frame #{i}: c10::Error + 0x99", False),
        ("request {i} failed", False),
    ],
)
def test_work_is_what_repeats_and_gets_somewhere(text: str, *, is_work: bool) -> None:
    assert (count_work(repeat(text, 30).encode().split(b"\n")) > 0) is is_work
