"""`gymnast check run`: what will go wrong in a run is said before it starts; a healthy one is ready."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.lab import ENVIRONMENT, RIGHT, WRONG, Answer, Lab, Policy, endpoint, error, install, said
from tests.helpers.commands import Outcome
from tests.helpers.jsonl import write_jsonl

TOOL = {"type": "function", "name": "look", "description": "", "strict": False, "parameters": {"type": "object"}}
LONG_TOOL = {**TOOL, "description": "x" * 9000}
NO_KEY = error(401, {"error": "no"})
SMALL = Answer(b'{"object": "list", "data": [{"id": "lab", "max_model_len": 512}]}')


@dataclass(frozen=True)
class Setup:
    """A run that is going to be checked, and what fails."""

    fails: str | None
    policy: Policy = lambda _, __: RIGHT
    models: Answer | None = None
    environment: str = "mcqa"
    rows: dict[str, Any] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    url: str | None = None


def refuse_tools(_: int, body: dict[str, Any]) -> Answer:
    text = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    return error(400, {"object": "error", "message": text}) if body.get("tools") else RIGHT


def answer_long_requests(_: int, body: dict[str, Any]) -> Answer:
    return error(500, {"error": "the answer is empty"}) if (body.get("max_tokens") or 999) < 100 else RIGHT


SETUPS = {
    "nothing listens": Setup("endpoint answer", url="http://127.0.0.1:9/v1"),
    "the key is wrong": Setup("endpoint answer", lambda _, __: NO_KEY, NO_KEY),
    "the model is unknown": Setup("endpoint answer", lambda _, __: error(404, {"error": "no such model"})),
    "the template is broken": Setup("endpoint answer", lambda _, __: error(400, {"error": "chat template: no user"})),
    "the server is broken": Setup("endpoint answer", lambda _, __: error(500, {"error": "CUDA error"})),
    "not an endpoint": Setup("endpoint answer", lambda _, __: Answer(b"<html>hello</html>")),
    "tools are refused": Setup("rollout", refuse_tools, rows={"tools": [TOOL]}),
    "the row exceeds the context": Setup("context", models=SMALL, rows={"tools": [LONG_TOOL]}),
    "the answer exceeds the context": Setup("context", models=SMALL, more=("--max-output-tokens", "600")),
    "no row has an answer": Setup("rows", rows={"expected_answer": None}),
    "answers that are no option": Setup("rows", rows={"expected_answer": "Q"}),
    "rows of the wrong type": Setup("rows", rows={"options": "A, B or C"}),
    "the verifier raises": Setup("rollout", environment="lab", rows={"trouble": "verify"}),
    "the verifier returns nan": Setup("rollout", environment="lab", rows={"trouble": "nan"}),
    "the session cannot be opened": Setup("rollout", environment="lab", rows={"trouble": "seed"}),
    "the sandbox does not work": Setup("rollout", environment="lab", rows={"trouble": "sandbox"}),
    # healthy
    "right answers": Setup(None),
    "wrong answers": Setup(None, lambda _, __: WRONG),
    "an endpoint that lists nothing": Setup(None, models=error(404, b"")),
    "a model that is not listed": Setup(None, models=Answer(b'{"object": "list", "data": [{"id": "other"}]}')),
    "a model that calls no tools": Setup(None, rows={"tools": [TOOL]}),
    "a context that is large enough": Setup(
        None, models=Answer(b'{"object": "list", "data": [{"id": "lab", "max_model_len": 32768}]}')
    ),
    "a model that only thinks in a short answer": Setup(None, answer_long_requests),
    "an environment of one's own": Setup(None, environment="lab"),
}


@pytest.mark.parametrize("name", SETUPS)
def test_a_run_is_checked(
    name: str, tmp_path: Path, invoke: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = SETUPS[name]
    monkeypatch.chdir(tmp_path)
    Lab(tmp_path).rows(3, **setup.rows)
    if setup.environment == "lab":
        install(tmp_path, ENVIRONMENT)
    before = sorted(tmp_path.iterdir())
    with endpoint(setup.policy, setup.models) as url:
        model = ("--model-type", "vllm_model", "-m", "lab", "--model-url", setup.url or url)
        files = ("-i", "tasks.jsonl", "-o", "x.jsonl")
        done = invoke("gymnast", "check", "run", "-e", setup.environment, *model, *files, *setup.more, "--json")
    report = json.loads(done.out)
    failed = [check["name"] for check in report["checks"] if check["status"] == "fail"]
    assert (done.code, report["ok"]) == ((0, True) if setup.fails is None else (1, False)), done.out
    assert setup.fails is None or setup.fails in failed, done.out
    assert sorted(path for path in tmp_path.iterdir() if "__pycache__" not in path.name) == before


def test_a_check_is_shown_as_text(
    tmp_path: Path, invoke: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Lab(tmp_path)
    with endpoint(lambda _, __: RIGHT) as url:
        model = ("--model-type", "vllm_model", "-m", "lab", "--model-url", url)
        done = invoke("gymnast", "check", "run", "-e", "mcqa", *model, "-i", "tasks.jsonl", "-o", "x.jsonl")
    assert done.code == 0, done.out + done.err
    assert done.out.splitlines()[-1] == "ready to collect"


JUDGED = """
judge_model:
  responses_api_models:
    vllm_model: {{entrypoint: app.py, base_url: "{url}", api_key: k, model: lab}}
"""
BY_JUDGE = "++equivalence_llm_judge.resources_servers.equivalence_llm_judge.judge_model_server.name=judge_model"


def check(invoke: Callable[..., Outcome], url: str, *arguments: str) -> dict[str, dict[str, Any]]:
    """The checks of a run, by name."""
    model = ("--model-type", "vllm_model", "-m", "lab", "--model-url", url)
    done = invoke("gymnast", "check", "run", *model, "-i", "tasks.jsonl", "-o", "x.jsonl", *arguments, "--json")
    return {entry["name"]: entry for entry in json.loads(done.out)["checks"]}


def test_a_verifier_that_tells_right_from_wrong_passes(tmp_path: Path, invoke: Callable[..., Outcome]) -> None:
    Lab(tmp_path)
    with endpoint(lambda _, __: WRONG) as url:
        verifier = check(invoke, url, "-e", "mcqa")["verifier"]
    assert verifier["status"] == "pass"
    assert verifier["observed"] == "a correct answer made from a row gets 1.0, a wrong one 0.0"


def test_a_verifier_that_accepts_everything_is_a_warning(tmp_path: Path, invoke: Callable[..., Outcome]) -> None:
    Lab(tmp_path)
    install(tmp_path, ENVIRONMENT)
    data = tmp_path / "resources_servers" / "lab" / "data"
    data.mkdir()
    row = json.loads((tmp_path / "tasks.jsonl").read_text().splitlines()[0])
    part = {"type": "output_text", "text": "It is \\boxed{A}", "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    request = {**row, "response": {"id": "r", "output": [message]}}
    case = {"name": "right", "kind": "full_reward", "expected_reward": 1.0, "request": request}
    write_jsonl(data / "verifier_cases.jsonl", [case])
    with endpoint(lambda _, __: RIGHT) as url:
        verifier = check(invoke, url, "-e", "lab")["verifier"]
    assert verifier["status"] == "warn", verifier
    assert "does not tell right from wrong" in verifier["observed"]


@pytest.mark.parametrize(("verdict", "failed"), [("[[A=B]]", set()), ("well…", {"rollout"})])
def test_the_judge_is_asked(verdict: str, failed: set[str], tmp_path: Path, invoke: Callable[..., Outcome]) -> None:
    Lab(tmp_path).rows(3, question="Which?")
    requests: list[str] = []

    def judge(_: int, body: dict[str, Any]) -> Answer:
        requests.append(str(body["messages"]))
        return said(verdict)

    with endpoint(lambda _, __: RIGHT) as url, endpoint(judge) as judge_url:
        (tmp_path / "judge.yaml").write_text(JUDGED.format(url=judge_url))
        checks = check(invoke, url, "-c", "judge.yaml", "-e", "equivalence_llm_judge", BY_JUDGE)
    assert {name for name, entry in checks.items() if entry["status"] == "fail"} == failed, checks
    assert requests
    assert failed or checks["judge"]["status"] == "pass"


def test_a_serve_is_not_checked_this_way(invoke: Callable[..., Outcome]) -> None:
    done = invoke("gymnast", "check", "run", "--head", "http://127.0.0.1:9", "-i", "a.jsonl", "-o", "x.jsonl")
    assert done.code == 2
    assert "gymnast doctor --head" in done.err
