"""A checkout with an environment as NeMo Gym's `env init` lays it out: a manifest, a config, a server with cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

APP = """
from pathlib import Path

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer,
)
from nemo_gym.verifier_fixture import VerifierFixture


class QuizRequest(BaseVerifyRequest):
    expected_answer: str


class QuizVerifier:
    async def verify(self, body: QuizRequest) -> BaseVerifyResponse:
        reward = float(body.response.output_text.strip() == body.expected_answer)
        return BaseVerifyResponse(**body.model_dump(), reward=reward)


class QuizServer(QuizVerifier, SimpleResourcesServer):
    config: BaseResourcesServerConfig


VERIFIER_FIXTURE = VerifierFixture(
    server_factory=QuizVerifier,
    request_model=QuizRequest,
    cases_path=Path(__file__).parent / "tests" / "verifier_cases.jsonl",
    reseed=lambda server, request: None,
)

if __name__ == "__main__":
    QuizServer.run_webserver()
"""
DATASET: dict[str, Any] = {
    "name": "quiz",
    "type": "example",
    "jsonl_fpath": "environments/quiz/data/example.jsonl",
    "num_repeats": 1,
}
MANIFEST: dict[str, Any] = {
    "name": "quiz",
    "version": "0.1.0",
    "kind": "environment",
    "integration_profile": "custom-gym-verifier",
    "domain": "other",
    "description": "A quiz.",
    "modality": "text",
    "licensing": "apache-2.0",
    "authors": ["A. Author"],
    "reward": {"range": [0.0, 1.0], "higher_is_better": True},
    "determinism": "seeded",
    "resources_server": "quiz",
    "agent_server": "simple_agent",
    "datasets": [DATASET],
    "model_server": "policy_model",
}
CONFIG: dict[str, Any] = {
    "config_paths": ["resources_servers/quiz/configs/quiz.yaml"],
    "quiz_agent": {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "app.py",
                "resources_server": {"type": "resources_servers", "name": "quiz_resources_server"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
                "datasets": [DATASET],
            }
        }
    },
}
SERVER = {"quiz_resources_server": {"resources_servers": {"quiz": {"entrypoint": "app.py", "domain": "other"}}}}
ROW = {"responses_create_params": {"input": [{"role": "user", "content": "6 x 7?"}]}, "expected_answer": "42"}


def request(text: str) -> dict[str, Any]:
    """A request to the verifier."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    response = {
        "id": "r", "created_at": 0, "model": "m", "object": "response", "output": [message],
        "parallel_tool_calls": False, "tool_choice": "none", "tools": [],
    }  # fmt: skip
    return {"responses_create_params": {"input": "6 x 7?"}, "response": response, "expected_answer": "42"}


CASES: list[dict[str, Any]] = [
    {"name": "right", "kind": "full_reward", "request": request("42"), "expected_reward": 1.0},
    {"name": "wrong", "kind": "zero_reward", "request": request("41"), "expected_reward": 0.0},
    {"name": "none", "kind": "malformed", "request": {"expected_answer": "42"}, "expected_error": "response"},
    {"name": "twice", "kind": "determinism", "request": request("42"), "expected_reward": 1.0},
]


def write_checkout(root: Path) -> Path:
    """Write the checkout; returns the manifest's path."""
    quiz, server = root / "environments" / "quiz", root / "resources_servers" / "quiz"
    for folder in (quiz / "data", server / "configs", server / "tests"):
        folder.mkdir(parents=True)
    (quiz / "config.yaml").write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    (quiz / "data" / "example.jsonl").write_text(json.dumps(ROW) + "\n")
    (server / "app.py").write_text(APP)
    (server / "requirements.txt").write_text("nemo-gym[dev]\n")
    (server / "configs" / "quiz.yaml").write_text(yaml.safe_dump(SERVER))
    write_cases(root, CASES)
    return write_manifest(root)


def write_manifest(root: Path, **changes: Any) -> Path:
    """Write the manifest with changes; None removes a field."""
    path = root / "environments" / "quiz" / "manifest.yaml"
    values = {key: value for key, value in {**MANIFEST, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


def write_cases(root: Path, cases: list[dict[str, Any]]) -> Path:
    """Write the cases of the verifier."""
    path = root / "resources_servers" / "quiz" / "tests" / "verifier_cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return path
