"""How doctor reads logs of unknown programs: which line is the cause, and how many witnesses a class has."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.doctor.log_lines import Level, hints_at_failure, level_of, reports_failure
from gymnast.doctor.system_errors import classify
from gymnast.doctor.transcripts import Rollout, contains_expected
from tests.helpers.log_reports import first, report

FRAMES = 'Traceback (most recent call last):\n  File "/srv/mill/grind.py", line 9, in grind\n    sieve(bags)\n'


# --- witnesses of a class --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: the left bag must have the same color as the right bag",
        "RuntimeError: expected three sieves but found none",
    ],
)
def test_words_of_many_messages_make_only_a_guess(message: str, tmp_path: Path) -> None:
    finding = first(tmp_path, FRAMES + message + "\n")
    assert finding["confidence"] == "low"
    assert message in finding["evidence"][0]["quote"]


def test_a_second_witness_makes_more_than_a_guess(tmp_path: Path) -> None:
    finding = first(tmp_path, "mill: error: option --width must be larger than --height\n")
    assert (finding["id"], finding["confidence"]) == ("bad_setting", "medium")


def test_a_source_file_in_a_message_is_not_a_missing_file(tmp_path: Path) -> None:
    finding = first(tmp_path, f"{FRAMES}RuntimeError: 90 rounds exceeded. Error occurred in file: /srv/mill/core.cc\n")
    assert finding["confidence"] == "low"


@pytest.mark.parametrize(
    "message",
    [
        "[grain.exception.out_of_range.403] key 'hopper' not found",
        "this may cause a significant slowdown of the mill",
        "sieve server terminated successfully (0)",
        "getpeername (milld): Transport endpoint is not connected",
    ],
)
def test_a_number_in_a_name_and_a_good_end_are_not_witnesses(message: str) -> None:
    assert classify(message) not in {"access_denied", "throttled", "terminated", "storage_lost"}


@pytest.mark.parametrize(
    "message", ['Error("invalid type: null", line: 33, column: 10)', "bad grain at row 4, column 2", "line 3, column 9"]
)
def test_a_place_in_a_document_tells_of_data(message: str) -> None:
    assert classify(message) == "data_unreadable"


# --- which line is the cause -----------------------------------------------------------------------------------------


def test_of_a_chain_of_causes_the_last_is_the_reason(tmp_path: Path) -> None:
    frames = "".join(f"    at com.mill.Sieve.step{number} (Sieve.java:{number})\n" for number in range(1, 9))
    log = (
        f"com.mill.JobException: the job failed.\n{frames}"
        f"Caused by: com.mill.JobException: no further attempts\n{frames}"
        f"Caused by: com.mill.GrainException: hopper [rye] sent no answer to describeGrain\n{frames}"
    )
    assert "hopper [rye]" in first(tmp_path, log)["symptom"]


def test_what_the_parent_of_a_dead_process_raises_is_a_consequence(tmp_path: Path) -> None:
    frames = FRAMES.replace("/srv/mill/grind.py", "/usr/lib/python3.12/multiprocessing/connection.py")
    start = "09:11:01 loading bags\n09:11:09 grinder 0 is dead, see its own log\n09:11:10 Exit code: -9\n"
    quote = first(tmp_path, f"{start}{frames}EOFError\n")["evidence"][0]["quote"]
    assert "is dead" in quote or "-9" in quote


def test_a_lost_peer_is_told_if_nothing_else_is(tmp_path: Path) -> None:
    assert "EOFError" in first(tmp_path, f"09:11:01 loading bags\n{FRAMES}EOFError\n")["evidence"][0]["quote"]


def test_an_exception_that_only_says_failed_passes_on_what_was_printed_before(tmp_path: Path) -> None:
    log = f"packing\n    Error: grain store is closed on sundays\n{FRAMES}RuntimeError: Mill failed to pack\n"
    assert "closed on sundays" in first(tmp_path, log)["symptom"]
    assert "Mill failed to pack" in first(tmp_path, f"packing\n{FRAMES}RuntimeError: Mill failed to pack\n")["symptom"]


def test_an_error_comes_before_an_earlier_warning(tmp_path: Path) -> None:
    log = (
        "[mill][WARNING] sieve_policy parameter was not found or is invalid (must be coarse or fine)\n"
        "[mill][INFO] starting\n[mill][ERROR] cannot create the hopper: unexpected key 'husk' in the plan\n"
    )
    assert "husk" in first(tmp_path, log)["symptom"]


def test_an_event_before_the_first_back_off_is_why(tmp_path: Path) -> None:
    log = (
        "  Normal   Scheduled               34m                 scheduler  Assigned mill/grinder to node1\n"
        "  Warning  FailedCreatePodSandBox  34m                 kubelet    Failed to create pod sandbox: fork/exec "
        "/usr/bin/mill-runtime: no such file or directory\n"
        "  Warning  BackOff                 3m (x140 over 33m)  kubelet    Back-off restarting failed container\n"
    )
    assert "mill-runtime" in first(tmp_path, log)["evidence"][0]["quote"]


# --- what a line is --------------------------------------------------------------------------------------------------


def test_small_words_at_the_start_of_a_line_are_levels() -> None:
    assert level_of(b'info millstone@1.2: the platform "rye" is incompatible with this module') is Level.INFO
    assert level_of(b"error Command failed with exit code 2.") is Level.ERROR


@pytest.mark.parametrize(
    "line",
    [
        "+ grind --mem-fraction-static 0.8",
        "command=grind --tp 2 --mem-fraction-static 0.8 --host a --port 9",
        "120     ../sysdeps/mill/grind-template.S: No such file or directory.",
    ],
)
def test_a_repeated_command_and_a_debugger_without_sources_report_nothing(line: str, tmp_path: Path) -> None:
    log = "".join(f"2031-05-06 09:11:{number:02d} INFO ground bag {number}\n" for number in range(30))
    assert report(tmp_path, f"{line}\n{log}").findings == ()
    assert "sieve 9 tore" in first(tmp_path, f"{line}\n{log}{FRAMES}MillError: sieve 9 tore\n")["symptom"]


def test_a_crash_in_the_output_that_another_program_passes_on_is_a_failure() -> None:
    assert reports_failure(b"2031/05/06 09:11:01 [DEBUG] plugin: mill: panic: hopper is nil, not a bag")
    assert not reports_failure(b"2031/05/06 09:11:01 [DEBUG] plugin: mill: ground 3 bags")


def test_a_paragraph_is_not_a_hint() -> None:
    sentence = b"The answer names the mill (and its stones), but it does not find why the sieve failed: "
    assert not hints_at_failure(b"Reasoning: " + sentence * 4)


def test_progress_that_was_overwritten_hides_nothing_and_keeps_line_numbers(tmp_path: Path) -> None:
    bar = "".join(f"\r {percent}%|#### | {percent}/100 [00:17<00:03, 5.01it/s]" for percent in range(90))
    end = "slurmstepd: error: *** JOB 77 ON node-3 CANCELLED AT 2031-05-06T09:12:00 ***"
    finding = first(tmp_path, f"epoch 1\n{bar}{end}\n")
    assert finding["id"] == "job_cancelled"
    assert finding["evidence"][0]["line"] == 2


def test_a_last_line_that_others_equal_does_not_break_off(tmp_path: Path) -> None:
    log = "".join(f"9:{number}|mill|ground a bag of rye\r\n" for number in range(30))
    assert report(tmp_path, log + "9:31|mill|ground a bag of rye").findings == ()


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so <answer> 7 </answer>\n", True),
        ("7 </b> </a>", True),
        ("7 </b> apples", False),
        (" " * 1_000_000, False),  # a search that tries every blank anew would not end
        ("</a>" * 250_000 + "x", False),
    ],
    ids=["tag", "tags", "words", "blanks", "only tags"],
)
def test_an_answer_before_closing_tags_is_the_last_word(text: str, *, expected: bool) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    record = {"response": {"output": [message]}, "expected_answer": "7"}
    assert contains_expected(Rollout(record, None)) is expected
