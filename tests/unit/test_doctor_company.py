"""What stands around an error in a log decides: floods, progress bars, data, groups of exceptions, a good last word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gymnast.doctor.line_roles import message_of
from gymnast.types.failure import Layer
from tests.helpers.log_reports import first, report


def quotes(finding: dict[str, Any]) -> str:
    return " ".join(str(evidence.get("quote", "")) for evidence in finding["evidence"])


def test_a_few_errors_within_a_flood_of_others_are_not_the_first_answer(tmp_path: Path) -> None:
    why = "connect() failed (111: Connection refused) while connecting to upstream"
    down = "2026/03/04 1{}:20:{:02d} [error] 9#9: *{} " + why
    large = "2026/03/04 12:00:01 [error] 9#9: *77 client intended to send too large body: 90000000 bytes"
    lines = [down.format(1, n, n) for n in range(25)] + [large] * 2 + [down.format(3, n, n) for n in range(25)]
    assert "connect() failed" in first(tmp_path, "\n".join(lines) + "\n")["evidence"][0]["quote"]


def test_a_message_behind_a_progress_bar_is_read() -> None:
    bar = "⠴ Scoring (0/1) ━━━━━━━━━━━━━━━━━━━━━━━━   0% 0:00:08Error scoring item 3: not a number: 'x'"
    assert message_of(bar) == "Error scoring item 3: not a number: 'x'"
    assert message_of("100% of the items: error in item 3") == "100% of the items: error in item 3"


def test_an_error_with_its_data_below_it_is_not_taken_for_work_that_goes_on(tmp_path: Path) -> None:
    item = (
        "[2026-03-04 11:20:{:02d}][root][ERROR] - Cannot render item: the tokenizer has no template\n"
        "Item: [{{'text': 'Is step one complete, and what is running?'\n"
    )
    data = " {'text': 'we are done, step 3 is complete'}\n" * 9 + "       dtype=object)}\n"
    found = report(tmp_path, "".join(item.format(n) + data for n in range(30)))
    assert "the tokenizer has no template" in quotes(found.as_json()["findings"][0])


def test_of_a_group_of_exceptions_the_inner_one_is_shown(tmp_path: Path) -> None:
    log = (
        "INFO:     started\n"
        "ERROR:    Exception in ASGI application\n"
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/v/lib/python3.12/site-packages/starlette/x.py", line 9, in run\n'
        "  |     async with group:\n"
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/srv/mill/app.py", line 4, in grind\n'
        "    |     return shelves[name]\n"
        "    | LookupError: no shelf called 'rye'\n"
        "    +------------------------------------\n"
    )
    assert "no shelf called 'rye'" in first(tmp_path, log)["evidence"][0]["quote"]


def test_a_traceback_whose_first_lines_are_missing_is_still_one(tmp_path: Path) -> None:
    log = (
        "[rank0]:            ^^^^^^^^^^^^^^^^^^\n"
        '[rank0]:   File "/v/lib/python3.12/site-packages/datasets/formatting/formatting.py", line 9, in __getitem__\n'
        "[rank0]:     value = self.data[key]\n"
        "[rank0]: KeyError: 'essay'\n"
    )
    assert first(tmp_path, log)["layer"] == Layer.DATA_SCHEMA


def test_the_frames_with_which_a_log_breaks_off_say_whose_code_ran(tmp_path: Path) -> None:
    log = (
        "Traceback (most recent call last):\n"
        "ray.exceptions.RayTaskError(KeyError): ray::main() (pid=1, ip=10.0.0.1)\n"
        'File "/srv/mill/fit.py", line 122, in main\n'
        "reward = self.reward_fn(batch)\n"
        'File "/srv/mill/fit.py", line 104, in _reward_of\n'
    )
    finding = first(tmp_path, log)
    assert (finding["layer"], finding["confidence"]) == (Layer.VERIFIER, "low")


def test_a_verdict_just_before_the_last_line_takes_errors_back(tmp_path: Path) -> None:
    work = "".join(f"grinding sack {n}: {n} kg\n" for n in range(12))
    log = f"ERROR: the stone was loose\n{work}Finished command: Return Code 0\nMilling finished.\n"
    assert report(tmp_path, log).is_healthy


def test_complaints_about_a_repository_are_about_a_side_tool(tmp_path: Path) -> None:
    work = "".join(f"step {n}: loss {1 / (n + 1):.3f}\n" for n in range(15))
    log = f"ERROR:2026-03-04 11:20:31:git root error: Cmd('git') failed due to: exit code(128)\n{work}"
    assert report(tmp_path, log).is_healthy


def test_weights_that_do_not_fit_when_a_run_is_restored_are_a_matter_of_resuming(tmp_path: Path) -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "/srv/mill/fit.py", line 9, in restore_run\n'
        "    model.load_state_dict(state)\n"
        "RuntimeError: Error(s) in loading state_dict for Mill: size mismatch for stone.weight\n"
    )
    assert first(tmp_path, log)["layer"] == Layer.CACHE_RESUME


def test_a_rate_limit_of_a_model_gateway_is_one_of_model_serving(tmp_path: Path) -> None:
    log = (
        '  File "/v/lib/python3.12/site-packages/litellm/router.py", line 9, in check\n'
        "    raise RouterRateLimitErrorBasic(\n"
        "litellm.types.router.RouterRateLimitErrorBasic: no deployments for the mill\n"
        "11:20:31 - LiteLLM Proxy:ERROR: processing.py:104 - no deployments for the mill\n"
    )
    finding = first(tmp_path, log)
    assert (finding["id"], finding["layer"]) == ("throttled", Layer.MODEL_SERVING)
