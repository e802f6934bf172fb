"""`gymnast data` and the ng_ commands for datasets, as users type them, with a Hub of the test's own."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from tests.helpers.commands import BIN, Outcome
from tests.helpers.datasets import AGENT, agent_with, row, train, write_config
from tests.helpers.hub_server import LocalHub, Repo, running_hub
from tests.helpers.jsonl import read_jsonl, write_jsonl

Run = Callable[..., Outcome]
ROOT = Path(__file__).parents[2]
MCQA = "resources_servers/mcqa/configs/mcqa.yaml"
ROWS = b"".join(
    orjson.dumps({"question": f"Which letter is number {n}?", "expected_answer": "A"}) + b"\n" for n in range(3)
)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """A Hub that the commands of this test find, with a cache of their own and nobody logged in."""
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf_home"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        hub.repos["my-org/questions"] = Repo({"train.jsonl": ROWS, "validation.jsonl": ROWS[: ROWS.index(b"\n") + 1]})
        yield hub


def test_the_page_about_datasets_works_as_written(tmp_path: Path, hub: LocalHub) -> None:
    page = (ROOT / "docs" / "how-to" / "datasets.md").read_text()
    script = "set -euo pipefail\n" + "\n".join(
        re.findall(r"^```bash\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    )
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "data" / "questions.jsonl").read_bytes() == ROWS
    assert len(read_jsonl(tmp_path / "data" / "validation.jsonl")) == 1
    prepared = read_jsonl(tmp_path / "prepared" / "train.jsonl")
    assert len(prepared) == 6
    assert prepared[0]["responses_create_params"]["input"][0]["content"].endswith("\\boxed{X}.")
    assert prepared[0]["agent_ref"] == {"type": "responses_api_agents", "name": AGENT}
    for name in ("prepared/train_metrics.json", "tasks_metrics.json"):
        assert json.loads((tmp_path / name).read_text())["Number of examples"] == 6


def test_what_is_prepared_can_be_collected(run: Run, tmp_path: Path) -> None:
    done = run("gymnast", "data", "prepare", "-e", "mcqa", "--mode", "example_validation", "--output-dir", "out")
    assert done.code == 0, done.err
    policy = "responses_api_models/scripted_model/configs/demo.yaml"
    done = run("gymnast", "collect", "-e", "mcqa", "-c", policy, "-i", "out/example.jsonl", "-o", "x.jsonl")
    assert done.code == 0, done.err
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 5


def test_prepare_tells_programs_what_it_wrote(run: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "t.jsonl", [row()])
    write_config(tmp_path, agent_with(train("t.jsonl", num_repeats=3)))
    data = run("gymnast", "data", "prepare", "-c", "c.yaml", "--output-dir", "out", "--json").json()
    assert data["mode"] == "train_preparation"
    assert data["types"]["train"]["examples"] == 3
    assert data["types"]["train"]["jsonl_fpath"] == "out/train.jsonl"


def test_bad_rows_end_preparation_with_their_places(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"broken\n{}\n')
    write_config(tmp_path, agent_with(train("t.jsonl")))
    for command, code in (
        (("gymnast", "data", "prepare", "-c", "c.yaml", "--output-dir", "out"), 2),
        (("ng_prepare_data", "+config_paths=[c.yaml]", "+mode=train_preparation", "+output_dirpath=out"), 1),
    ):
        done = run(*command)
        assert done.code == code
        assert "t.jsonl line 1: not JSON" in done.err
        assert "t.jsonl line 2: the row has no" in done.err
        assert "Traceback" not in done.err
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["c.yaml", "t.jsonl"]


def test_ng_prepare_data_word_by_word(run: Run, tmp_path: Path, hub: LocalHub) -> None:
    hub.repos["org/private"] = Repo({"train.jsonl": orjson.dumps(row(level=1)) + b"\n"}, token="hf_secret")
    write_config(tmp_path, agent_with(train("data/t.jsonl", huggingface_identifier={"repo_id": "org/private"})))
    command = ("ng_prepare_data", "+config_paths=[c.yaml]", "+mode=train_preparation", "+output_dirpath=out")
    missing = run(*command)
    assert missing.code == 1
    assert "+should_download=true" in missing.err
    refused = run(*command, "+should_download=true")
    assert refused.code == 1
    assert "private" in refused.err
    (tmp_path / "env.yaml").write_text("hf_token: hf_secret\n")
    done = run("nemo_gym_prepare_data", *command[1:], "+should_download=true")
    assert done.code == 0, done.err
    assert len(read_jsonl(tmp_path / "out" / "train.jsonl")) == 1
    assert "hf_secret" not in done.out + done.err
    write_jsonl(tmp_path / "data" / "t.jsonl", [row(level=2)])
    conflict = run(*command)
    assert conflict.code == 1
    assert "level.Average was 1.0 and is 2.0" in conflict.err
    assert (tmp_path / "data" / "t_metrics_conflict.json").exists()
    assert run(*command, "+overwrite_metrics_conflicts=true").code == 0
    assert not list(tmp_path.rglob("*conflict*"))


def test_ng_download_and_materialize_word_by_word(run: Run, tmp_path: Path, hub: LocalHub) -> None:
    repo = "+repo_id=my-org/questions"
    for fields, name in (
        (("+artifact_fpath=train.jsonl", "+output_fpath=a/t.jsonl"), "a/t.jsonl"),
        (("+split=validation", "+output_dirpath=b"), "b/validation.jsonl"),
        (("+output_dirpath=c",), "c/train.jsonl"),
    ):
        done = run("ng_download_dataset_from_hf", repo, *fields)
        assert done.code == 0, done.err
        assert name in done.out
        assert (tmp_path / name).exists()
    (tmp_path / "p.yaml").write_text("user: '{question}'\n")
    done = run(
        *("ng_materialize_prompts", "+input_jsonl_fpath=a/t.jsonl", "+prompt_config=p.yaml"),
        "+output_jsonl_fpath=out.jsonl",
    )
    assert done.code == 0, done.err
    assert read_jsonl(tmp_path / "out.jsonl")[0]["prompt_config_used"] == str((tmp_path / "p.yaml").resolve())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("ng_prepare_data", "+output_dirpath=out"), 2, "+mode=… is required"),
        (
            ("ng_prepare_data", "+mode=train", "+output_dirpath=out"),
            2,
            "available: example_validation, train_preparation",
        ),
        (("ng_prepare_data", "+mode=train_preparation"), 2, "+output_dirpath=… is required"),
        (
            ("ng_prepare_data", f"+config_paths=[{MCQA}]", "+mode=train_preparation", "+output_dirpath=out"),
            1,
            "no agent has a dataset of type train or validation or benchmark",
        ),
        (
            ("ng_prepare_data", "+mode=train_preparation", "+output_dirpath=out", "+data_source=hf"),
            2,
            "invalid value 'hf' for data_source",
        ),
        (("ng_download_dataset_from_hf", "+output_fpath=x"), 2, "+repo_id=… is required"),
        (("ng_download_dataset_from_hf", "+repo_id=a/b", "+output_fpath=x"), 2, "one artifact or one split"),
        (
            ("ng_download_dataset_from_hf", "+repo_id=a/b", "+split=train", "+artifact_fpath=f", "+output_fpath=x"),
            2,
            "mutually exclusive",
        ),
        (("ng_download_dataset_from_hf", "+repo_id=a/b", "+split=train", "+output_fpath=x"), 1, "no dataset 'a/b'"),
        (
            ("ng_materialize_prompts", "+prompt_config=p", "+output_jsonl_fpath=o"),
            2,
            "+input_jsonl_fpath=… is required",
        ),
        (("gymnast", "data", "prepare", "--mode", "exampel_validation", "--output-dir", "o"), 2, "did you mean"),
        (("gymnast", "data", "validate"), 2, "no agent has a dataset"),
        (("gymnast", "data", "validate", "-i", "nope.jsonl"), 2, "'nope.jsonl' does not exist"),
        (
            ("gymnast", "data", "validate", "-i", "x", "--ignore", "duplicates"),
            2,
            "invalid value 'duplicates' for --ignore",
        ),
        (("gymnast", "data", "download", "--repo-id", "a/b", "--split", "train"), 2, "give one of --output"),
        (("gymnast", "data", "render", "-i", "x"), 2, "--prompt-config"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_mistakes_are_explained_without_a_traceback(run: Run, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = run(*arguments)
    assert done.code == code, done.err
    assert said in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_validate_prints_every_problem_and_counts_them(run: Run, tmp_path: Path) -> None:
    rows = [row("a", agent_ref={"name": "mcqa_agent"}), row(""), row(""), {"responses_create_params": {}}]
    write_jsonl(tmp_path / "t.jsonl", rows)
    done = run("gymnast", "data", "validate", "-e", "mcqa", "-i", "t.jsonl", "--license", "MTI")
    assert done.code == 2
    for text in (
        "agent: agents that are not configured (1)",
        "t.jsonl line 1: the agent 'mcqa_agent' is not configured; did you mean 'mcqa_simple_agent'?",
        "empty: empty prompts or answers (2)",
        "t.jsonl line 3: duplicate of t.jsonl line 2",
        "t.jsonl line 4: responses_create_params.input: Field required",
        "t.jsonl: unknown license 'MTI'; did you mean 'MIT'?",
        "6 problems in 4 rows",
    ):
        assert text in done.err
    result = run("gymnast", "data", "validate", "-i", "t.jsonl", "--json")
    assert result.code == 2
    assert result.json()["rows"] == 4
    assert {kind: found["count"] for kind, found in result.json()["problems"].items()} == {
        "empty": 2,
        "schema": 1,
        "duplicate_row": 1,
    }
    ignored = ("--ignore", "empty", "--ignore", "schema", "--ignore", "duplicate_row")
    fine = run("gymnast", "data", "validate", "-i", "t.jsonl", *ignored)
    assert fine.code == 0
    assert "valid: 4 rows (t.jsonl)" in fine.out


def test_validate_takes_all_configured_datasets_and_their_licenses(run: Run, tmp_path: Path) -> None:
    done = run("gymnast", "data", "validate", "-e", "mcqa", "-e", "example_multi_step")
    assert done.code == 0, done.err
    assert "valid: 10 rows" in done.out
    write_jsonl(tmp_path / "t.jsonl", [row()])
    write_config(tmp_path, agent_with(train("t.jsonl", license="Apache 2")))
    unknown = run("gymnast", "data", "validate", "-c", "c.yaml")
    assert unknown.code == 2
    assert "unknown license 'Apache 2'" in unknown.err


def test_render_and_download_tell_programs_what_they_wrote(run: Run, tmp_path: Path, hub: LocalHub) -> None:
    data = run("gymnast", "data", "download", "--repo-id", "my-org/questions", "--output-dir", "d", "--json").json()
    assert [(one["path"], one["rows"]) for one in data["files"]] == [("d/train.jsonl", 3), ("d/validation.jsonl", 1)]
    (tmp_path / "p.yaml").write_text("user: '{question}'\n")
    arguments = ("-i", "d/train.jsonl", "--prompt-config", "p.yaml", "-o", "r.jsonl", "--json")
    assert run("gymnast", "data", "render", *arguments).json() == {"output_jsonl_fpath": "r.jsonl", "rows": 3}


def test_without_the_library_a_download_names_the_extra(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "huggingface_hub.py").write_text("raise ImportError('not here')\n")
    done = run(
        *("gymnast", "data", "download", "--repo-id", "a/b", "--artifact", "x", "-o", "y"),
        env={"PYTHONPATH": str(tmp_path / "lib")},
    )
    assert done.code == 2
    assert "pip install 'gymnast[hub]'" in done.err
    assert not (tmp_path / "y").exists()


def test_every_data_command_has_help_and_its_other_name(run: Run) -> None:
    for command in ("prepare", "render", "validate", "download"):
        assert "Usage:" in run("gymnast", "data", command, "--help").out
    listed = run("ng_help").out
    for name in ("ng_prepare_data", "ng_download_dataset_from_hf", "ng_materialize_prompts"):
        assert name in listed
        assert run(name, "--help").code == 0
        assert (BIN / name.replace("ng_", "nemo_gym_")).exists()
