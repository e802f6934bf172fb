"""How doctor judges a log by its end: which errors still stand there, and which the program got over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymnast.doctor.examine import examine, find_target
from gymnast.doctor.log_lines import Level, hints_at_failure, level_of
from gymnast.doctor.system_errors import classify

FRAME = '  File "/v/lib/python3.12/site-packages/kettle/net.py", line 7, in call\n    return self.open()\n'
CHAIN = "\nThe above exception was the direct cause of the following exception:\n\n"


def steps(count: int) -> str:
    return "".join(f"2031-05-06 09:10:{i % 60:02} INFO mill: batch {i} ground, {i * 3} bags\n" for i in range(count))


def findings(folder: Path, log: str) -> list[dict[str, Any]]:
    path = folder / "mill.log"
    path.write_text(log)
    report: list[dict[str, Any]] = examine(find_target(path)).as_json()["findings"]
    return report


ERROR = "2031-05-06 09:00:00 ERROR mill: cannot open the hatch of silo 4\n"


def test_an_error_after_which_the_log_goes_on_is_not_a_fault(tmp_path: Path) -> None:
    assert not findings(tmp_path, steps(3) + ERROR + steps(8))


def test_an_error_with_which_the_log_ends_is_one(tmp_path: Path) -> None:
    assert findings(tmp_path, steps(8) + ERROR)[0]["evidence"][0]["line"] == 9


def test_an_error_that_was_overcome_is_not_the_cause_of_a_later_end(tmp_path: Path) -> None:
    bind = "2031-05-06 09:00:00 ERROR mill: bind failed: address already in use\n"
    end = "2031-05-06 09:30:00 ERROR mill: worker (pid 81) is killed by signal: Killed.\n"
    assert findings(tmp_path, bind + steps(60) + end)[0]["evidence"][0]["line"] == 62


def test_an_error_that_comes_again_and_again_while_work_goes_on_is_background(tmp_path: Path) -> None:
    disk = "2031-05-06 09:00:00 ERROR monitor: silo {i} is over 95 percent, fills will fail if it is full\n"
    log = "".join(disk.format(i=i) + steps(20) for i in range(6))
    assert not findings(tmp_path, log + disk.format(i=9))


def test_lines_that_differ_in_an_id_are_one_error_and_the_first_is_shown(tmp_path: Path) -> None:
    line = "May  6 0{i}:00:00 mill relay[{i}7]: 5{i}CE64C{i}: to=<a@b.example>, status=deferred (Name service error)\n"
    evidence = findings(tmp_path, "".join(line.format(i=i) for i in range(1, 6)))[0]["evidence"][0]
    assert evidence["line"] == 1


def test_the_kernel_goes_on_after_it_killed_a_process(tmp_path: Path) -> None:
    kill = "May  6 09:00:00 n1 kernel: [ 21.8] Out of memory: Killed process 88 (mill) total-vm:66kB\n"
    later = "".join(f"May  6 10:00:{i:02} n1 kernel: [ 9{i}.1] eth0: link is ready\n" for i in range(30))
    assert findings(tmp_path, kill + later)[0]["id"] == "oom_kill"


def test_a_count_of_failed_items_at_the_end_makes_their_errors_matter(tmp_path: Path) -> None:
    warning = "2031-05-06 09:00:0{i} WARNING judge: failed to parse the verdict for item_{i}\n"
    log = "".join(warning.format(i=i % 10) + steps(1) for i in range(12))
    assert not findings(tmp_path, log + "2031-05-06 09:59:00 INFO judge: 12 items scored\n")
    tally = "2031-05-06 09:59:00 INFO judge: 18 scored, 12 failed\n"
    assert findings(tmp_path, log + tally)[0]["evidence"][0]["line"] == 1


def test_a_scheduler_that_ended_the_job_did_whatever_is_printed_after_it(tmp_path: Path) -> None:
    log = "=>> PBS: job killed: walltime 7210 exceeded limit 7200\n\n" + steps(60)
    assert findings(tmp_path, log)[0]["id"] == "time_limit"


def test_what_is_ignored_by_its_own_words_is_not_a_fault(tmp_path: Path) -> None:
    assert not findings(tmp_path, "scan: sack_17.png: ignoring corrupt picture: bad header\nscanned 80 sacks\n")


def test_a_vague_exception_gives_way_to_the_one_that_names_the_host(tmp_path: Path) -> None:
    inner = f"Traceback (most recent call last):\n{FRAME}TimeoutError: timed out\n"
    outer = f"Traceback (most recent call last):\n{FRAME}kettle.ConnectTimeout: connection to tea.example timed out\n"
    finding = findings(tmp_path, inner + CHAIN + outer)[0]
    assert finding["layer"] == "infra"
    assert "tea.example" in finding["evidence"][0]["quote"]


def test_the_innermost_exception_is_the_cause_if_it_names_something(tmp_path: Path) -> None:
    inner = f"Traceback (most recent call last):\n{FRAME}KeyError: 'hopper_width'\n"
    outer = f"Traceback (most recent call last):\n{FRAME}kettle.BuildError: cannot build mill 3\n"
    assert "hopper_width" in findings(tmp_path, inner + CHAIN + outer)[0]["evidence"][0]["quote"]


def test_code_in_a_traceback_is_not_a_message(tmp_path: Path) -> None:
    frame = (
        '  File "/v/lib/python3.12/encodings/utf_8.py", line 15, in decode\n    def decode(input, errors="strict"):\n'
    )
    reports = findings(tmp_path, f"Traceback (most recent call last):\n{frame}KeyboardInterrupt\n")
    assert not reports


def test_what_a_library_raises_below_a_model_server_concerns_the_model(tmp_path: Path) -> None:
    log = (
        'Traceback (most recent call last):\n  File "/srv/mill/bench.py", line 11, in <module>\n    main()\n'
        '  File "/v/lib/python3.12/site-packages/vllm/entrypoints/llm.py", line 3, in __init__\n    self.load()\n'
        '  File "/v/lib/python3.12/site-packages/wordpiece/load.py", line 9, in load\n    return raw(name)\n'
        "TypeError: not a string\n"
    )
    assert findings(tmp_path, log)[0]["layer"] == "model_serving"


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"<3>[  88.9] nic0: transmit unit hang", Level.ERROR),
        (b"<6>[  88.9] nic0: link is ready", Level.INFO),
        (b'{"level":30,"time":177,"msg":"ready"}', Level.INFO),
        (b'{"level":50,"time":177,"msg":"no route"}', Level.ERROR),
    ],
)
def test_levels_that_are_numbers(line: bytes, level: Level) -> None:
    assert level_of(line) is level


def test_a_word_of_failure_within_an_option_is_not_a_hint() -> None:
    assert not hints_at_failure(b"RUN fetch update --fix-missing && fetch install mill")
    assert hints_at_failure(b"the sieve of mill 3 is missing")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("HOPPER not found. Declare it as envvar or give a default.", "variable_unset"),
        ("HOPPER_WIDTH is not set", "variable_unset"),
        ("Run folder already exists: runs/mill-3", "output_exists"),
        ("the server closed the connection unexpectedly", "peer_lost"),
        ("grinder.cc:91: file write failed", "storage_lost"),
    ],
)
def test_classes_by_words_that_programs_share(message: str, kind: str) -> None:
    assert classify(message) == kind


@pytest.mark.parametrize(
    "line",
    ["    0 sieves tested and failed,", "Result: 0 of 12 bags failed", "0 errors", "done (0 mills with errors)"],
)
def test_nothing_that_failed_is_not_a_failure(line: str) -> None:
    assert not hints_at_failure(line.encode())


@pytest.mark.parametrize("line", ["rank 0 failed", "worker 0 failed to start", "10 bags failed"])
def test_a_zero_that_is_a_number_of_something_hides_no_failure(line: str) -> None:
    assert hints_at_failure(line.encode())


def test_an_object_where_code_wants_text_is_a_bug_of_that_code_and_not_a_wrong_version(tmp_path: Path) -> None:
    frames = '  File "/srv/mill/grind.py", line 3, in grind\n    name = reply.strip()\n' + FRAME
    log = f"{steps(3)}Traceback (most recent call last):\n{frames}"
    first = findings(tmp_path, log + "AttributeError: 'Reply' object has no attribute 'strip'\n")[0]
    assert first["id"] != "install_mismatch"
    first = findings(tmp_path, log + "AttributeError: module 'kettle' has no attribute 'boil'\n")[0]
    assert first["id"] == "install_mismatch"


def test_a_model_that_an_endpoint_does_not_know_is_not_a_missing_command(tmp_path: Path) -> None:
    reply = "Error code: 404 - {'error': {'message': 'Model not found or not loaded'}}"
    assert findings(tmp_path, f"{steps(2)}2031-05-06 09:11:00 ERROR taste: call failed: {reply}\n")[0]["id"] == (
        "model_name_wrong"
    )
