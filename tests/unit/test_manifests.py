"""`gym env validate` with a manifest: it fits its config, its rows can be run, its profile is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymnast.compat.gym_entry import run_gym
from gymnast.compat.ng import run_words, run_work
from tests.helpers.manifest_checkout import CONFIG, DATASET, MANIFEST, write_checkout, write_manifest

Said = pytest.CaptureFixture[str]
AGENT = """
class QuizAgent(SimpleAgent):
{body}

if __name__ == "__main__":
    QuizAgent.run_webserver()
"""


@pytest.fixture(autouse=True)
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_checkout(tmp_path)


def validate(*words: str) -> int:
    return run_gym(["env", "validate", *words])


def report(capsys: Said, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert validate(*words, "--json") == 0
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    return values


def test_a_manifest_is_valid_by_its_path_and_by_its_name(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    by_name = report(capsys, "quiz")
    assert by_name["datasets"] == [
        {
            "name": "quiz",
            "type": "example",
            "path": str(tmp_path / DATASET["jsonl_fpath"]),
            "rows": 1,
            "prompt_config": None,
        }
    ]
    roles = [(part["role"], part["name"], part["implementation"]) for part in by_name["components"]]
    assert roles == [
        ("resources_server", "quiz_resources_server", "quiz"),
        ("agent_server", "quiz_agent", "simple_agent"),
        ("model_server", "policy_model", "runtime-selected"),
    ]
    assert by_name["inferred_profile"] == by_name["declared_profile"] == "custom-gym-verifier"
    assert by_name["warnings"] == by_name["synchronized_fields"] == []
    other = tmp_path / "elsewhere"
    other.mkdir()
    monkeypatch.chdir(other)
    assert report(capsys, "--manifest", str(manifest)) == by_name
    assert validate("--manifest", str(manifest)) == 0
    assert "valid: environment quiz 0.1.0" in capsys.readouterr().out


def test_a_stale_mirror_is_an_error_and_sync_updates_only_it(tmp_path: Path, manifest: Path, capsys: Said) -> None:
    write_manifest(tmp_path, agent_server="other_agent", datasets=[{**DATASET, "num_repeats": 4}])
    before = manifest.read_bytes()
    assert validate("quiz") == 1
    message = capsys.readouterr().err
    assert 'agent_server: manifest "other_agent", config "simple_agent"' in message
    assert "datasets: manifest" in message
    assert manifest.read_bytes() == before
    assert report(capsys, "quiz", "--sync")["synchronized_fields"] == ["agent_server", "datasets"]
    assert yaml.safe_load(manifest.read_text()) == {**MANIFEST, "licensing": "Apache-2.0", "lifecycle": "active"}
    words = [f"+manifest_path={manifest}", "+sync=true"]
    assert run_work(lambda: run_words("ng_validate", words)) == 0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "other"}, "its folder's 'quiz'"),
        ({"kind": "benchmark"}, "it needs canonical_split, standard_prompt_config"),
        ({"licensing": "Free for all"}, "SPDX"),
        ({"authors": []}, "authors"),
        ({"authors": ["A", "A"]}, "twice"),
        ({"reward": {"range": [1, 0], "higher_is_better": True}}, "two numbers, the lower one first"),
        ({"typo": 1}, "typo"),
        ({"model_server": None}, "it needs model_server"),
        ({"rollout_driver": "a.b:c"}, "rollout_driver needs the profile"),
        ({"datasets": [{**DATASET, "type": "benchmark"}]}, "prepare_script"),
    ],
)
def test_a_manifest_that_is_not_valid_is_reported_with_its_fields(
    tmp_path: Path, changes: dict[str, Any], text: str, capsys: Said
) -> None:
    write_manifest(tmp_path, **changes)
    assert validate("quiz", "--sync") == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "text"),
    [("", "is empty"), ("{", "not JSON"), ("[]", "expected a JSON object"), ('{"a": 1}', "responses_create_params")],
)
def test_rows_that_cannot_be_run_are_reported_with_their_line(rows: str, text: str, capsys: Said) -> None:
    Path(DATASET["jsonl_fpath"]).write_text(rows)
    assert validate("quiz") == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "profile"),
    [
        ("    pass", "custom-gym-verifier"),
        ("    async def responses(self, body):\n        return await super().responses(body)", "unknown"),
        ("    async def responses(self, body):\n        raise NotImplementedError('x')", "external-agent-loop"),
        ("    async def responses(self, body):\n        if body:\n            raise NotImplementedError\n", "unknown"),
        ("    async def responses(self, body):\n        return body", "custom-gym-agent-loop"),
    ],
)
def test_the_profile_is_inferred_from_the_agents_code(tmp_path: Path, body: str, profile: str, capsys: Said) -> None:
    folder = tmp_path / "responses_api_agents" / "quiz_agent"
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(AGENT.format(body=body))
    agents = CONFIG["quiz_agent"]["responses_api_agents"]
    config = {**CONFIG, "quiz_agent": {"responses_api_agents": {"quiz_agent": agents["simple_agent"]}}}
    Path("environments/quiz/config.yaml").write_text(yaml.safe_dump({**config, "error_on_unknown_settings": False}))
    write_manifest(tmp_path, agent_server="quiz_agent")
    result = report(capsys, "quiz")
    assert result["inferred_profile"] == profile
    assert bool(result["warnings"]) == (profile != "custom-gym-verifier")


def test_a_benchmark_whose_server_has_its_name_is_not_an_environment(tmp_path: Path, capsys: Said) -> None:
    folder = tmp_path / "benchmarks" / "quiz"
    (tmp_path / "environments" / "quiz").rename(tmp_path / "moved")
    folder.parent.mkdir()
    (tmp_path / "moved").rename(folder)
    (folder / "prepare.py").write_text("def prepare():\n    pass\n")
    (folder / "prompt.yaml").write_text("user: '{question}'\n")
    (folder / "data" / "example.jsonl").write_text('{"question": "6 x 7?", "expected_answer": "42"}\n')
    names = {"prepare_script": "prepare.py", "prompt_config": "prompt.yaml", "jsonl_fpath": "data/example.jsonl"}
    dataset = {**DATASET, "type": "benchmark", **{key: f"benchmarks/quiz/{name}" for key, name in names.items()}}
    text = (folder / "config.yaml").read_text()
    config = yaml.safe_load(text)
    config["quiz_agent"]["responses_api_agents"]["simple_agent"]["datasets"] = [dataset]
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    values = {**MANIFEST, "kind": "benchmark", "datasets": [dataset], "canonical_split": "test"}
    values["standard_prompt_config"] = dataset["prompt_config"]
    (folder / "manifest.yaml").write_text(yaml.safe_dump(values))
    result = report(capsys, "quiz")
    assert (result["kind"], result["datasets"][0]["rows"]) == ("benchmark", 1)
    assert result["datasets"][0]["prompt_config"] == str(folder / "prompt.yaml")
    (folder / "prompt.yaml").write_text("user: '{other}'\n")
    assert validate("quiz") == 1
    assert "uses {other}, which the row does not have" in capsys.readouterr().err


def test_options_that_need_a_manifest_or_exclude_each_other(manifest: Path, capsys: Said) -> None:
    for words, code, text in (
        (["quiz", "--manifest", str(manifest)], 1, "takes no NAME"),
        (["--manifest", str(manifest), "--kind", "environment"], 1, "takes no NAME and no --kind"),
        (["--manifest", "nope/manifest.yaml"], 1, "does not exist"),
        (["--sync"], 1, "--sync needs a manifest"),
        (["quiz", "+update_expected=true"], 1, "gym env test NAME"),
    ):
        assert validate(*words) == code, words
        assert text in capsys.readouterr().err
    manifest.unlink()
    assert validate("quiz") == 0
    assert validate("quiz", "--sync") == 1
    assert "'quiz' has no manifest" in capsys.readouterr().err
