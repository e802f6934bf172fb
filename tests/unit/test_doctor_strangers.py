"""How doctor reads logs of unknown programs: who speaks, what is a cause, what is only talk, what ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.doctor.line_roles import Role, role_of
from gymnast.doctor.log_lines import Level, hints_at_failure, level_of
from gymnast.doctor.log_markers import without_advice
from gymnast.doctor.system_errors import classify
from tests.helpers.log_reports import first, report

ENGINE = "(EngineCore pid=88) ERROR 03-04 11:20:31 [core.py:91]"


# --- who speaks ------------------------------------------------------------------------------------------------------


def test_a_captured_stream_has_the_level_of_the_program_that_wrote_it() -> None:
    assert level_of(b"2026-03-04 11:20:31 | ERROR | stderr | INFO:     listening on port 9000") is Level.INFO
    assert level_of(b"2026-03-04 11:20:31 | ERROR | stderr | ERROR: no such table") is Level.ERROR


def test_a_warning_of_python_is_a_warning() -> None:
    assert level_of(b"/opt/lib/gpu.py:31: UserWarning: CUDA initialization: unexpected error") is Level.WARNING


@pytest.mark.parametrize("line", [b"  Case 7: ERROR - index out of range", b"Result: FAIL", b"==== ERRORS TODAY ===="])
def test_a_verdict_about_an_item_and_a_heading_report_no_failure(line: bytes) -> None:
    assert level_of(line) is Level.INFO


def test_a_sentence_of_a_model_is_not_a_hint() -> None:
    assert not hints_at_failure(b"However, I cannot look this up, so the second method fails too.")
    assert hints_at_failure(b"lookup of shard 9 failed")


def test_colors_do_not_hide_a_traceback(tmp_path: Path) -> None:
    lines = [
        f"{ENGINE} Traceback (most recent call last):",
        f'{ENGINE}   File "/v/lib/python3.12/site-packages/vllm/x.py", line 3, in load',
        f"{ENGINE}     table = build(rows)",
        f"{ENGINE} TypeError: 'Row' object is not callable",
    ]
    colored = [line.replace("(EngineCore pid=88)", "\x1b[1;36m(EngineCore pid=88)\x1b[0;0m") for line in lines]
    for text in (lines, colored):
        finding = first(tmp_path, "\n".join(("vLLM API server version 9", *text)) + "\n")
        assert finding["id"] == "engine_exception"
        assert "TypeError: 'Row' object is not callable" in finding["symptom"]


def test_a_traceback_without_its_first_line_is_one_even_at_the_end_of_a_file_without_a_newline(tmp_path: Path) -> None:
    log = (
        'step 1\n\n  File "/w/metrics.py", line 8, in mean\n    total = left + right\n'
        "ValueError: operands could not be broadcast together with shapes (3,2) (3,)"
    )
    finding = first(tmp_path, log)
    assert finding["id"] == "code_exception"
    assert "/w/metrics.py:8" in finding["next"]


# --- cause and consequence -------------------------------------------------------------------------------------------


def test_the_connection_that_failed_is_the_cause_and_the_gpu_error_after_it_is_not(tmp_path: Path) -> None:
    log = (
        "n7:11:40 [0] NCCL WARN NET/IB : Got completion from peer 10.1.0.9 with status=12 vendor err 129\n"
        "n7:11:40 [0] NCCL INFO transport.cc:80 -> 6\n"
        "n7: Test NCCL failure 'unhandled cuda error'\n"
    )
    assert first(tmp_path, log)["id"] == "collective_failed"


def test_the_last_line_of_a_traceback_is_a_reason_even_if_it_is_short(tmp_path: Path) -> None:
    log = (
        "ERROR dumping the inputs of the step\n"
        'Traceback (most recent call last):\n  File "/w/kernels.py", line 5, in lower\n    pm.run(mod)\n'
        "RuntimeError: pass pipeline run failed\n"
    )
    assert "RuntimeError: pass pipeline run failed" in first(tmp_path, log)["symptom"]


def test_an_end_that_points_above_is_an_end_whatever_stands_before_the_colon() -> None:
    message = "shop.EngineDeadError: the engine has a problem. See stack trace (above) for the root cause."
    assert role_of(message, is_cause=False) is Role.END


def test_a_specific_cause_comes_before_an_earlier_line_with_common_words(tmp_path: Path) -> None:
    log = (
        "TP3] tuned table not found at /opt/tables/E=8.json, speed may suffer\n"
        "ERROR rank 3: CUDA error: uncorrectable ECC error encountered\n"
        "ERROR child 3 exited with code 1\n"
    )
    assert first(tmp_path, log)["id"] == "gpu_fault"


# --- what is only said -----------------------------------------------------------------------------------------------


def test_advice_does_not_hide_what_the_same_line_observes(tmp_path: Path) -> None:
    line = "(scaler +2m) Warning: this request cannot be scheduled right now: GPU 4. Consider adding nodes.\n"
    assert without_advice(b"Consider adding nodes.") == b""
    assert first(tmp_path, "starting\n" + line * 3)["id"] == "scheduler_refused"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("RuntimeError: alloc_slots runs out of memory, lower the number of requests", "pool_exhausted"),
        ("APIError: code 402, please add credits to the account", "quota_used_up"),
        ("RuntimeError: operator shop::pack does not exist", "install_mismatch"),
        ("RuntimeError: device kernel image is invalid", "install_mismatch"),
        ("Command '['/usr/bin/gcc', 'a.c']' returned non-zero exit status 1.", "install_mismatch"),
        ("0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: 0/4 nodes", "scheduler_refused"),
        ("ValueError: total available GPUs 4 is less than desired 8", "scheduler_refused"),
        ("Check failed: left == right", "process_crashed"),
        ("BUG: unable to handle page fault for address 0", "node_broken"),
        ("socket.h:403 NCCL WARN Connect failed: network is unreachable", "collective_failed"),
        ("failed to resolve reference a/b: dial tcp 10.0.0.9:443: i/o timeout", "unreachable"),
        ("skipping sync: the container runtime is down", "node_broken"),
        ("misconfiguration: driver a is not driver b of docker", "config_key"),
    ],
)
def test_classes_by_shared_words(message: str, kind: str) -> None:
    assert classify(message) == kind


def test_gpu_memory_of_a_training_program_is_not_that_of_a_model_server(tmp_path: Path) -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    trace = f'Traceback (most recent call last):\n  File "/w/fit.py", line 9, in fit\n    loss.backward()\n{error}'
    finding = first(tmp_path, "{'loss': 0.4, 'grad_norm': 1.0}\n" + trace)
    assert finding["id"] == "training_oom"
    assert "batch size" in finding["next"]
    assert first(tmp_path, "vLLM API server version 9\n" + trace)["id"] == "cuda_oom"


# --- what recovers and what ends -------------------------------------------------------------------------------------


def test_the_last_word_of_a_program_takes_back_an_error_message(tmp_path: Path) -> None:
    conflict = "ERROR: shop 2 requires paint==3, but you have paint 4 which is incompatible.\n"
    assert report(tmp_path, f"building\n{conflict}Successfully installed paint-4\n").is_healthy
    assert not report(tmp_path, f"building\n{conflict}").is_healthy


def test_a_tracker_that_fails_does_not_end_the_work(tmp_path: Path) -> None:
    rest = "".join(f"wandb: metric_{name} 0.1\n" for name in "abcdefghijklmnopqrstuvwxyz")
    assert report(tmp_path, f"wandb: ERROR while calling the API: deadline exceeded\n{rest}").is_healthy


def test_one_request_for_an_unknown_model_is_not_a_fault_of_a_server_that_goes_on(tmp_path: Path) -> None:
    refused = "ERROR 03-04 11:20:31 [chat.py:9] The model `paint` does not exist.\n"
    answered = 'INFO:     10.0.0.1:40{} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    assert report(tmp_path, refused + "".join(answered.format(port) for port in range(10, 16))).is_healthy
    assert report(tmp_path, refused).findings[0].id == "model_name_wrong"


def test_retries_until_the_end_are_a_fault(tmp_path: Path) -> None:
    line = "WARNING: retrying, connection broken by 'NewError(<at 0x7f{:04x}>: [Errno -5] no address)': /{}/{}/\n"
    log = "".join(line.format(i, "ab"[i % 2], "cdefg"[i % 5]) for i in range(40))
    assert first(tmp_path, log)["id"] == "dns"


def test_high_confidence_needs_the_end_of_the_log_or_of_a_process(tmp_path: Path) -> None:
    error = "OSError: [Errno 28] No space left on device: '/s/a'\n"
    trace = f'Traceback (most recent call last):\n  File "/w/a.py", line 1, in w\n    f.write(x)\n{error}'
    other = "".join(
        f"note {name}{letter}\n" for name in ("one", "two", "three") for letter in "abcdefghijklmnopqrstuvwxyz"
    )
    assert first(tmp_path, trace)["confidence"] == "high"
    assert first(tmp_path, trace + other)["confidence"] != "high"


def test_a_helper_that_is_missing_after_the_failure_is_not_its_cause(tmp_path: Path) -> None:
    log = (
        "[2026-03-04 11:20:31 TP1] Watchdog timeout (self.watchdog_timeout=300)\n"
        "[2026-03-04 11:20:31 TP1] no dump of pid 7. Error: /bin/sh: stackdump: command not found\n"
        "[2026-03-04 11:20:36] a child failed\nKilled\n"
    )
    assert first(tmp_path, log)["id"] != "command_missing"


def test_a_signal_that_a_program_reports_is_noticed(tmp_path: Path) -> None:
    assert first(tmp_path, "job a: running\nload: pid=31, got signal=9\n")["id"] == "process_killed"


def test_words_of_failure_long_before_a_normal_end_do_not_count(tmp_path: Path) -> None:
    rest = "".join(f"note {letter}\n" for letter in "abcdefghijklmnopqrstuvwxyz")
    assert report(
        tmp_path, f"the second attempt to divide is invalid\n{rest}2026-03-04 11:20:36 INFO step\n"
    ).is_healthy


def test_what_a_collective_passes_on_is_reported_by_the_line_that_names_it(tmp_path: Path) -> None:
    log = "RuntimeError: NCCL error: unhandled cuda error, version 2\nLast error:\nCuda failure: out of memory\n"
    assert first(tmp_path, f"vLLM API server version 9\n{log}")["id"] == "cuda_oom"


# --- what is data, what is over --------------------------------------------------------------------------------------


def test_names_in_a_list_are_data() -> None:
    assert not hints_at_failure(b"    features: ['prompt', 'chosen', 'rejected', 'is_invalid'],")
    assert hints_at_failure(b"upload of ['a', 'b'] was rejected")


def test_mathematics_is_not_a_hint() -> None:
    assert not hints_at_failure("so ¬B ∨ C cannot be met".encode())


def test_a_note_is_not_a_failure() -> None:
    assert level_of(b"Note: floating-point exceptions are signalling: IEEE_DENORMAL") is Level.INFO


def test_counters_of_what_did_not_happen_say_nothing() -> None:
    assert classify("Errors: connect 0, refused 0, timeout 12") == "timed_out"
    assert classify("cannot connect to 10.0.0.7:80") == "endpoint_down"


def test_a_shell_script_that_cannot_be_parsed_is_a_fault_of_its_code(tmp_path: Path) -> None:
    log = "loading modules\n/var/spool/job7/script: line 12: syntax error: unexpected end of file\n"
    assert first(tmp_path, log)["id"] == "code_exception"


def test_a_pod_that_found_a_node_later_fails_for_what_its_node_says(tmp_path: Path) -> None:
    log = (
        "Events:\n"
        "  Warning  FailedScheduling  7m  default-scheduler  0/3 nodes are available: 3 Insufficient memory.\n"
        "  Normal   Scheduled  5m  default-scheduler  Successfully assigned rl/judge-0 to node-3\n"
        '  Warning  Failed  2m (x3 over 5m)  kubelet  Failed to pull image "reg.local/judge:4": '
        "unexpected status from HEAD request: 401 Unauthorized\n"
        "  Warning  Failed  1m (x5 over 5m)  kubelet  Error: ImagePullBackOff\n"
    )
    assert first(tmp_path, log)["id"] == "access_denied"
    unplaced = "\n".join(log.splitlines()[:2]) + "\n"
    assert first(tmp_path, unplaced)["id"] == "scheduler_refused"


def test_an_exception_of_an_earlier_run_in_the_same_file_is_not_the_cause(tmp_path: Path) -> None:
    def traceback(error: str) -> str:
        return f'Traceback (most recent call last):\n  File "/w/train.py", line 3, in main\n    go()\n{error}\n'

    tail = "".join(f"waiting for shard of rank {rank}\n" for rank in range(70))
    log = traceback("ModuleNotFoundError: No module named 'flax'") + "rows\n" * 2000
    log += traceback("KeyError: 'advantages'") + tail
    assert "advantages" in first(tmp_path, log)["symptom"]


def test_texts_of_a_model_with_words_of_failure_are_not_failures(tmp_path: Path) -> None:
    names = [f"{a}{b}" for a in "ABCDEF" for b in "GHIJK"]
    lines = [f"{name}: the proof of {name.lower()}x is invalid here\n" + "a line\n" * 60 for name in names]
    assert report(tmp_path, "".join(lines)).as_json()["findings"] == []


def test_a_message_that_the_program_went_on_from_gives_way_to_the_exception_that_ended_it(tmp_path: Path) -> None:
    traceback = [
        "Traceback (most recent call last):",
        '  File "/v/lib/python3.12/site-packages/vllm/worker.py", line 8, in profile',
        "    run()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    ]
    log = [
        f"{ENGINE} Kernel 7 is not supported on devices with compute capability below 9",
        *(f"(EngineCore pid=88) INFO 03-04 11:20:4{i} [model.py:7] loading part {i}" for i in range(8)),
        *(f"{ENGINE} {line}" for line in traceback),
        "(APIServer pid=80) RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    assert "out of memory" in first(tmp_path, "\n".join(log) + "\n")["symptom"]


def test_a_file_that_is_not_in_the_cache_of_a_hub_is_a_failed_download() -> None:
    message = "LocalEntryNotFoundError: we cannot find the requested files in the local cache. Check your connection."
    assert classify(message) == "download_failed"


def test_ranks_that_cannot_reach_each_other_download_nothing(tmp_path: Path) -> None:
    log = "n1:22:31 [0] misc/socket.cc:9 NCCL WARN Connect to 10.9.0.2<4510> failed : No route to host\n"
    assert first(tmp_path, log)["id"] == "collective_failed"


def waits(what: str, minutes: int) -> str:
    return "".join(f"[2026-03-04 11:{20 + i}:31] INFO worker.py:8: {what}, {i} min\n" for i in range(minutes))


def test_a_log_that_ends_with_minutes_of_waiting_is_told_as_a_stall(tmp_path: Path) -> None:
    head = "[2026-03-04 11:19:01] INFO worker.py:2: loading weights\n"
    finding = first(tmp_path, head + waits("waiting for the lock of /cache/ext", 9))
    assert (finding["id"], finding["confidence"]) == ("log_stalls", "low")
    assert finding["evidence"][0]["line"] == 2


@pytest.mark.parametrize(("what", "minutes"), [("waiting for requests", 9), ("waiting for the lock", 2)])
def test_a_server_without_work_and_a_short_wait_are_not_stalls(tmp_path: Path, what: str, minutes: int) -> None:
    assert report(tmp_path, waits(what, minutes)).as_json()["findings"] == []


def test_a_check_of_a_program_that_names_a_setting_is_about_the_setting(tmp_path: Path) -> None:
    frame = (
        'Traceback (most recent call last):\n  File "/w/run.py", line 3, in plan\n    assert workers % groups == 0\n'
    )
    refused = first(tmp_path, frame + "AssertionError: workers=8 is not divisible by groups=3\n")
    assert (refused["id"], refused["layer"]) == ("bad_setting", "config")
    assert first(tmp_path, frame + "AssertionError\n")["id"] == "code_exception"


def test_a_quota_of_the_day_is_not_a_rate_limit() -> None:
    assert classify("429: you have exceeded today's quota for model Bird-5, try again tomorrow") == "quota_used_up"
    assert classify("429: rate limit reached for model Bird-5, retry in 2 s") == "throttled"
