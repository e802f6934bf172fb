"""`gymnast check endpoint`: what real servers can do is found out with a handful of tiny requests."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import DEMO_POLICY, SCRIPTED, Outcome
from tests.helpers.local_serve import LocalServe

ENGINE = Path(__file__).parents[1] / "helpers" / "openai_server.py"
EMBEDDED = "responses_api_models/embedded_model/configs/embedded_model.yaml"
FEW_TOKENS = 400
SCRIPT = "++policy_model.responses_api_models.scripted_model.script=script.json"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def engine(*arguments: str) -> Iterator[str]:
    """A small engine as a process; gives its base URL."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(ENGINE), "--port", str(port), *arguments], stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(1000):
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def checks(done: Outcome) -> dict[str, dict[str, Any]]:
    report = done.json()
    assert report["tokens_used"] < FEW_TOKENS
    return {check["name"]: check for check in report["checks"]}


def statuses(done: Outcome) -> dict[str, str]:
    return {name: check["status"] for name, check in checks(done).items()}


def test_an_engine_with_token_ids(invoke: Callable[..., Outcome]) -> None:
    with engine("--token-ids") as url:
        done = invoke("gymnast", "check", "endpoint", url, "--json", "--need", "token_ids")
    assert done.code == 0, done.out + done.err
    assert done.json()["model"] == "small"
    found = statuses(done)
    passing = {"models", "answer", "usage", "latency", "token_ids"}
    assert {name for name, status in found.items() if status == "pass"} == passing
    assert {found[name] for name in ("tools_auto", "tools_forced", "streaming", "logprobs", "context")} == {
        "unsupported"
    }


def test_what_a_run_needs_and_an_engine_lacks_is_an_error(invoke: Callable[..., Outcome]) -> None:
    with engine() as url:
        good = invoke("gymnast", "check", "endpoint", url)
        lacking = invoke("gymnast", "check", "endpoint", url, "--need", "token_ids")
        wrong = invoke("gymnast", "check", "endpoint", url, "--model", "large", "--json")
    assert good.code == 0
    assert "everything a run needs passes" in good.out
    assert lacking.code == 1
    assert "[needed]" in lacking.out
    assert checks(wrong)["models"]["next"] == "set policy_model_name to one of: small"


def test_nobody_there(invoke: Callable[..., Outcome]) -> None:
    done = invoke("gymnast", "check", "endpoint", f"http://127.0.0.1:{free_port()}/v1", "--json", "--timeout", "3")
    assert done.code == 1
    assert statuses(done) == {"models": "fail", "answer": "fail"}


@pytest.mark.parametrize(
    ("config", "more"), [(DEMO_POLICY, {"usage": "pass"}), (EMBEDDED, {"usage": "pass", "streaming": "pass"})]
)
def test_our_own_models_as_served_and_as_configured(
    invoke: Callable[..., Outcome], serve_here: Callable[..., LocalServe], config: str, more: dict[str, str]
) -> None:
    served = serve_here(config_paths=[config])
    over_http = invoke("gymnast", "check", "endpoint", served.url("policy_model"), "--json")
    assert over_http.code == 0, over_http.out + over_http.err
    here = invoke("gymnast", "check", "endpoint", "-c", config, "--json")
    assert here.code == 0
    for done in (over_http, here):
        found = statuses(done)
        assert found["answer"] == found["models"] == "pass"
        assert {name: found[name] for name in more} == more
    assert over_http.json()["address"].endswith("/v1")


def test_training_mode_of_the_embedded_model(invoke: Callable[..., Outcome]) -> None:
    done = invoke("gymnast", "check", "endpoint", "-c", EMBEDDED, "--json", "--need", "token_ids")
    assert done.code == 0
    assert "sampled with logprobs" in checks(done)["token_ids"]["said"]


def test_tool_calls_are_recognised(tmp_path: Path, invoke: Callable[..., Outcome]) -> None:
    call = {"tool_calls": [{"name": "look_up_city", "arguments": {"city": "Oslo"}}]}
    (tmp_path / "script.json").write_text(json.dumps([{"when": "tool", "replies": [call]}, {"replies": ["ready"]}]))
    done = invoke("gymnast", "check", "endpoint", "-c", SCRIPTED, SCRIPT, "--json")
    found = checks(done)
    assert found["tools_auto"]["status"] == found["tools_forced"]["status"] == "pass"
    assert found["tools_auto"]["said"] == 'called look_up_city with {"city":"Oslo"}'


AS_TEXT = '<tool_call>{"name": "look_up_city", "arguments": {"city": "Oslo"}}</tool_call>'


@pytest.mark.parametrize(
    ("name", "reply", "status", "observed"),
    [
        ("tools_auto", AS_TEXT, "fail", "the call arrives as text"),
        ("tools_auto", "look_up_city(city='Oslo')", "fail", "the call arrives as text"),
        ("tools_auto", "Oslo is in Norway.", "unsupported", "no call"),
        ("tools_auto", {"tool_calls": [{"name": "search", "arguments": {}}]}, "fail", "was not offered"),
        ("tools_auto", {"tool_calls": [{"name": "look_up_city", "arguments": {"town": "x"}}]}, "fail", "lack 'city'"),
        ("answer", "", "fail", "answered nothing"),
        ("answer", " \n", "fail", "answered nothing"),
        ("json_schema", "Oslo has four letters.", "unsupported", "not JSON"),
        ("json_schema", '{"city": "Oslo", "letters": 4}', "pass", "Oslo"),
        ("json_schema", '{"city": "Oslo", "letters": "4"}', "unsupported", "'letters'"),
        ("reasoning", "9.9", "unsupported", "the reply has none"),
        ("reasoning", "<thinking>hm</thinking>9.9", "unsupported", "inside the answer"),
        ("images", "I see nothing.", "unsupported", "not recognised"),
        ("images", "Red.", "pass", "Red."),
        (
            "tools_parallel",
            {"tool_calls": [{"name": "look_up_city", "arguments": {"city": "Oslo"}}]},
            "unsupported",
            "1",
        ),
    ],
)
def test_a_check_passes_only_if_the_reply_proves_it(
    tmp_path: Path, invoke: Callable[..., Outcome], name: str, reply: Any, status: str, observed: str
) -> None:
    (tmp_path / "script.json").write_text(json.dumps([{"replies": [reply]}]))
    done = invoke("gymnast", "check", "endpoint", "-c", SCRIPTED, SCRIPT, "--json", "--require", name)
    check = checks(done)[name]
    assert check["status"] == status, check
    assert observed in check["said"]
    assert status == "pass" or (done.code == 1 and check["next"])


def test_a_refusal_of_tools_is_unsupported_and_a_crash_is_a_failure(
    tmp_path: Path, invoke: Callable[..., Outcome], serve_here: Callable[..., LocalServe]
) -> None:
    for status, expected in ((400, "unsupported"), (500, "fail")):
        reply = {"status": status, "body": {"error": {"message": "auto tool choice requires a parser"}}}
        rules = [{"when": "tool", "replies": [reply]}, {"replies": ["ready"]}]
        (tmp_path / "script.json").write_text(json.dumps(rules))
        served = serve_here(SCRIPT, config_paths=[SCRIPTED])
        done = invoke("gymnast", "check", "endpoint", served.url("policy_model"), "--json", "--need", "tools_auto")
        assert done.code == 1
        check = checks(done)["tools_auto"]
        assert (check["status"], check["needed"]) == (expected, True)
        assert "requires a parser" in check["said"]
        assert checks(done)["answer"]["status"] == "pass"


def test_the_context_length_is_read_from_a_refusal(tmp_path: Path, invoke: Callable[..., Outcome]) -> None:
    message = "This model's maximum context length is 2048 tokens. However, you requested 1000000012 tokens."
    rules = [{"replies": [{"status": 400, "body": {"error": {"message": message}}}]}]
    (tmp_path / "script.json").write_text(json.dumps(rules))
    done = invoke("gymnast", "check", "endpoint", "-c", SCRIPTED, SCRIPT, "--json", "--probe-context")
    assert done.code == 1  # it answers nothing at all
    assert checks(done)["context"]["said"] == "2048 tokens, according to its error"


def test_a_refused_key_is_reported(
    invoke: Callable[..., Outcome], serve_here: Callable[..., LocalServe], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("GYMNAST_TOKEN", "only-for-friends")
        served = serve_here(config_paths=[DEMO_POLICY])
    done = invoke("gymnast", "check", "endpoint", f"{served.url('policy_model')}/v1", "--json")
    assert done.code == 1
    assert checks(done)["models"]["next"] == "check policy_api_key"
    key = "++policy_api_key=only-for-friends"
    assert invoke("gymnast", "check", "endpoint", served.url("policy_model"), key).code == 0


def test_no_endpoint_is_a_mistake_of_the_caller(invoke: Callable[..., Outcome]) -> None:
    assert invoke("gymnast", "check", "endpoint").code == 2
    assert invoke("gymnast", "check", "endpoint", "http://127.0.0.1:1/v1", "--need", "tool").code == 2
