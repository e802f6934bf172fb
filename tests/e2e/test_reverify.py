"""`gymnast reverify`: stored rollouts are scored again without inference, and nothing is overwritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.helpers.commands import DEMO_POLICY, Outcome
from tests.helpers.jsonl import read_jsonl, write_jsonl

Run = Callable[..., Outcome]
MCQA = ("-e", "mcqa", "-c", DEMO_POLICY)
JUDGED = """
import json, pathlib

HERE = pathlib.Path(__file__).parent


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    row = json.loads(body or b"{}")
    if scope["path"] == "/verify":
        bar = float((HERE / "bar").read_text())
        found = {**{key: row[key] for key in ("responses_create_params", "response")}, "reward": bar}
        if row["n"] % 2 and (HERE / "judge_is_down").exists():
            found |= {"reward": 0.0, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "gone"}
    elif scope["path"] == "/reverify_mode":
        found = (HERE / "mode").read_text()
    elif scope["path"] == "/aggregate_metrics":
        found = {"agent_metrics": {"asked": len(row["verify_responses"])}, "key_metrics": {}, "group_level_metrics": []}
    else:
        found = {}
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(found).encode()})
"""
CONFIG = {
    "judged": {"resources_servers": {"judged": {"entrypoint": "app.py", "domain": "other"}}},
    "judged_agent": {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "app.py",
                "resources_server": {"type": "resources_servers", "name": "judged"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
            }
        }
    },
}


class World:
    """An environment with a judge that can be down and a bar that can be moved, and ten tasks for it."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self.run = folder, run
        self.server = folder / "resources_servers" / "judged"
        self.server.mkdir(parents=True)
        (self.server / "app.py").write_text(JUDGED)
        (folder / "judged.yaml").write_text(yaml.safe_dump(CONFIG))
        self.set(bar="0.25", mode="stateless")
        rows = [{"responses_create_params": {"input": "q"}, "n": number} for number in range(10)]
        write_jsonl(folder / "in.jsonl", rows)

    def set(self, **files: str) -> None:
        for name, text in files.items():
            (self.server / name).write_text(text)

    def collect(self, *arguments: str) -> Outcome:
        names = ("-c", "judged.yaml", "-c", DEMO_POLICY, "-i", "in.jsonl", "-o", "x.jsonl")
        return self.run("gymnast", "collect", *names, *arguments)

    def reverify(self, *arguments: str) -> Outcome:
        return self.run("gymnast", "reverify", "x.jsonl", "-c", "judged.yaml", *arguments)


@pytest.fixture
def world(tmp_path: Path, run: Run) -> World:
    return World(tmp_path, run)


def test_stored_rollouts_are_scored_again_by_another_verifier(world: World, tmp_path: Path) -> None:
    assert world.collect("-n", "2").code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.glob("x*") if path.is_file()}
    world.set(bar="0.75")
    done = world.reverify("-o", "y.jsonl")
    assert done.code == 0, done.err
    old, new = (
        {(row["_ng_task_index"], row["_ng_rollout_index"]): row for row in read_jsonl(tmp_path / name)}
        for name in ("x.jsonl", "y.jsonl")
    )
    assert set(old) == set(new)
    assert {row["reward"] for row in new.values()} == {0.75}
    assert all(new[key]["response"] == old[key]["response"] for key in old)
    assert (tmp_path / "y_materialized_inputs.jsonl").read_bytes() == before["x_materialized_inputs.jsonl"]
    assert "asked" in (tmp_path / "y_aggregate_metrics.json").read_text()
    assert (tmp_path / "y.jsonl.done").exists()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("x*") if path.is_file()} == before


def test_only_what_the_judge_failed_is_scored_again_and_the_rest_is_copied(world: World, tmp_path: Path) -> None:
    world.set(judge_is_down="")
    assert world.collect("--max-attempts", "1").code == 1
    scored = (tmp_path / "x.jsonl").read_bytes()
    assert len(read_jsonl(tmp_path / "x.jsonl")) == len(read_jsonl(tmp_path / "x_failures.jsonl")) == 5
    (world.server / "judge_is_down").unlink()
    world.set(bar="0.75", mode="unknown")  # the mode is not asked for: what failed was never scored
    done = world.reverify("-o", "y.jsonl", "--judge-failed-only")
    assert done.code == 0, done.err
    assert (tmp_path / "y.jsonl").read_bytes().startswith(scored)
    rewards = {row["_ng_task_index"]: row["reward"] for row in read_jsonl(tmp_path / "y.jsonl")}
    assert rewards == {task: 0.75 if task % 2 else 0.25 for task in range(10)}
    appended = world.reverify("--judge-failed-only", "--append")
    assert appended.code == 0, appended.err
    assert (tmp_path / "x.jsonl").read_bytes().startswith(scored)
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 10
    assert world.collect("--resume").code == 0  # nothing is owed any more
    assert world.reverify("--judge-failed-only", "--append").code == 0  # nothing left to do is no error


def test_an_environment_that_is_not_stateless_needs_force_and_marks_the_files(world: World, tmp_path: Path) -> None:
    assert world.collect().code == 0
    world.set(mode="unknown")
    refused = world.reverify("-o", "y.jsonl")
    assert refused.code == 2
    assert "judged (unknown)" in refused.err
    forced = world.reverify("-o", "y.jsonl", "--force")
    assert forced.code == 0, forced.err
    assert len(read_jsonl(tmp_path / "unsafe_y.jsonl")) == 10
    assert not (tmp_path / "y.jsonl").exists()


def test_nothing_is_overwritten(world: World, tmp_path: Path) -> None:
    assert world.collect().code == 0
    for options in (("--overwrite",), ("--resume",), ()):
        refused = world.reverify("-o", "x.jsonl", *options)
        assert refused.code == 2
        assert "never overwrites" in refused.err
    assert world.reverify("-o", "y.jsonl", "--limit", "4").code == 0
    assert len(read_jsonl(tmp_path / "y.jsonl")) == 4
    assert "an earlier run exists" in world.reverify("-o", "y.jsonl").err
    assert "limit" in world.reverify("-o", "y.jsonl", "--resume").err  # another selection is another run
    assert world.reverify("-o", "y.jsonl", "--resume", "--limit", "4").code == 0
    assert world.reverify("-o", "y.jsonl", "--overwrite").code == 0
    assert len(read_jsonl(tmp_path / "y.jsonl")) == 10


def test_a_verifier_that_fails_is_not_a_reward(world: World, tmp_path: Path) -> None:
    assert world.collect().code == 0
    world.set(bar="nonsense")
    done = world.reverify("-o", "y.jsonl")
    assert done.code == 1
    assert "0 of 10 rollouts were scored" in done.err
    assert (tmp_path / "y.jsonl").read_text() == ""
    assert {row["failure"]["stage"] for row in read_jsonl(tmp_path / "y_failures.jsonl")} == {"verify"}


def test_wrong_use_is_explained(run: Run, tmp_path: Path) -> None:
    assert "missing --output" in run("gymnast", "reverify", "-e", "mcqa", "--rollouts", "x.jsonl").err
    missing = run("gymnast", "reverify", "x.jsonl", "-e", "mcqa", "-o", "y.jsonl")
    assert missing.code == 2
    assert "there is no run 'x.jsonl'" in missing.err
    assert "name the run" in run("gymnast", "reverify", "-e", "mcqa", "-o", "y.jsonl").err
    old = run("gymnast", "reverify", "-e", "mcqa", "--rollouts", "x.jsonl", "-o", "y.jsonl", "+a=1")
    assert "warning: --rollouts RUN is now just RUN" in old.err
    assert "there is no run 'x.jsonl'" in old.err
    assert "--judge-failed-only" in run("gymnast", "reverify", "-e", "mcqa", "--rollouts", "x.jsonl", "--append").err


def test_a_configured_split_is_collected(run: Run, tmp_path: Path) -> None:
    done = run("gymnast", "collect", *MCQA, "--split", "example", "-o", "x.jsonl")
    assert done.code == 0, done.err
    prepared = read_jsonl(tmp_path / "x" / "preprocessed_datasets" / "example.jsonl")
    assert {row["agent_ref"]["name"] for row in prepared} == {"mcqa_simple_agent"}
    assert len(read_jsonl(tmp_path / "x.jsonl")) == len(prepared)
    other = run("gymnast", "collect", *MCQA, "--split", "train", "-o", "y.jsonl")
    assert other.code == 2
    assert "no dataset of type 'train'" in other.err
    neither = run("gymnast", "collect", *MCQA, "-o", "y.jsonl").err
    assert "needs either an input file or a split\n" in neither
    assert "available: example" in neither
    both = run("gymnast", "collect", *MCQA, "-o", "y.jsonl", "--split", "example", "--input", "x.jsonl")
    assert "a split, not both" in both.err


def test_the_e2e_command_serves_and_collects(run: Run, tmp_path: Path) -> None:
    paths = f"+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,{DEMO_POLICY}]"
    done = run("ng_e2e_collect_rollouts", paths, "+split=example", "+output_jsonl_fpath=x.jsonl", "+num_repeats=2")
    assert done.code == 0, done.err
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 10
    assert run("ng_e2e_collect_rollouts", paths, "+output_jsonl_fpath=x.jsonl").code == 2
