"""The `ng_` commands that are not collecting: each exists, says what it does, does it, and fails in words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gymnast.compat import ng, ng_benchmarks, ng_data, ng_listing, ng_servers, ng_upload, ng_viewer
from gymnast.compat.ng_asked import Asked, FieldError
from gymnast.errors import NotFoundError, UserError
from tests.support import example_rows, write_jsonl

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
LEGACY = (
    "run",
    "test",
    "test_all",
    "dev_test",
    "init_resources_server",
    "list_benchmarks",
    "prepare_benchmark",
    "collect_rollouts",
    "e2e_collect_rollouts",
    "aggregate_rollouts",
    "materialize_prompts",
    "reward_profile",
    "upload_dataset_to_gitlab",
    "download_dataset_from_gitlab",
    "upload_dataset_to_hf",
    "download_dataset_from_hf",
    "prepare_data",
    "gitlab_to_hf_dataset",
    "delete_dataset_from_gitlab",
    "dump_config",
    "validate",
    "status",
    "pip_list",
    "version",
    "help",
    "reinstall",
    "viewer",
)
Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: str, text: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def ask(*words: str, **values: Any) -> Asked:
    return Asked(words, values=values)


# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEGACY)
def test_every_command_of_the_contract_is_installed_under_both_names_and_has_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    for script in (f"ng_{name}", f"nemo_gym_{name}"):
        assert PROJECT["scripts"][script] == f"gymnast.compat.ng:{name}"
    monkeypatch.setattr(sys, "argv", [f"ng_{name}", "--help"])
    with pytest.raises(SystemExit) as ended:
        getattr(ng, name)()
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"ng_{name}: {ng.COMMANDS[f'ng_{name}']}")
    assert "+key=value" in said


def test_nothing_but_the_contracts_commands_is_listed() -> None:
    assert {name.removeprefix("ng_") for name in ng.COMMANDS} == set(LEGACY)


def test_options_and_bad_fields_end_with_two_and_bad_configurations_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    for name, words, code, said in (
        ("test", ["--entrypoint"], 2, "there is no option --entrypoint"),
        ("test", [], 2, "+entrypoint=… is required"),
        ("test", ["+entrypoint=resources_servers/nope"], 1, "does not exist"),
        ("aggregate_rollouts", ["+input_glob=*.jsonl", "+output_jsonl_fpath=x.jsonl"], 1, "there is no file"),
        ("list_benchmarks", ["+json=maybe"], 2, "json is true or false"),
        ("download_dataset_from_gitlab", [], 1, "GitLab"),
    ):
        monkeypatch.setattr(sys, "argv", [f"ng_{name}", *words])
        with pytest.raises(SystemExit) as ended:
            getattr(ng, name)()
        assert ended.value.code == code, words
        assert said in capsys.readouterr().err


# --- servers ---------------------------------------------------------------------------------------------------------


def server(name: str, test: str | None) -> Path:
    folder = write(f"resources_servers/{name}/app.py", "ANSWER = 42\n").parent
    if test is not None:
        write(f"resources_servers/{name}/tests/test_{name}.py", test)
    return folder


PASSES = "from resources_servers.{0}.app import ANSWER\n\n\ndef test_it():\n    assert ANSWER == 42\n"


def test_the_tests_of_all_servers_run_and_are_summed_up(capsys: Said) -> None:
    server("a", PASSES.format("a"))
    server("b", "def test_it():\n    assert False\n")
    server("c", None)
    assert ng_servers.test_all(ask()) == 1
    assert capsys.readouterr().out.split("\n")[-4:-1] == [
        "passed   resources_servers/a",
        "failed   resources_servers/b",
        "no tests resources_servers/c",
    ]
    assert ng_servers.test_all(ask("+num_shards=3", "+shard_index=2")) == 0
    assert ng_servers.test_all(ask("+num_shards=3", "+shard_index=2", "+fail_on_total_and_test_mismatch=true")) == 1
    with pytest.raises(FieldError, match="from 0 to 2"):
        ng_servers.test_all(ask("+num_shards=3", "+shard_index=3"))


def test_a_server_whose_packages_cannot_be_had_does_not_keep_others_from_their_tests(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMNAST_CACHE_DIR", str(Path("cache").absolute()))
    server("a", PASSES.format("a"))
    write("resources_servers/a/requirements.txt", "none-such @ file:///nowhere/none_such-1-py3-none-any.whl\n")
    server("b", PASSES.format("b"))
    assert ng_servers.test_all(ask()) == 1
    said = capsys.readouterr()
    assert said.out.split("\n")[-3:-1] == ["failed   resources_servers/a", "passed   resources_servers/b"]
    assert Path("cache/logs/resources_servers-a.venv.log").exists()
    assert "resources_servers-a.venv.log" in said.err


def test_example_data_is_five_rows_their_metrics_and_five_rollouts(capsys: Said) -> None:
    folder = server("a", None)
    assert ng_servers.test_all(ask("+should_validate_data=true")) == 1
    assert capsys.readouterr().err.count("problem:") == 3
    (folder / "data").mkdir()
    for name in ("example", "example_rollouts"):
        write_jsonl(folder / "data" / f"{name}.jsonl", [{}] * 5)
    write("resources_servers/a/data/example_metrics.json", '{"Number of examples": 5}')
    assert ng_servers.test_all(ask("+should_validate_data=true")) == 0
    write("resources_servers/a/data/example_metrics_conflict.json", "{}")
    assert ng_servers.test_all(ask("+should_validate_data=true")) == 1
    assert "unsettled metrics conflict" in capsys.readouterr().err


def test_a_folder_without_servers_is_said() -> None:
    with pytest.raises(NotFoundError, match="no servers here"):
        ng_servers.test_all(ask())
    for command in (ng_servers.dev_test, ng_servers.reinstall):
        with pytest.raises(NotFoundError):
            command(ask())


def test_packages_of_a_server_are_listed(capsys: Said) -> None:
    server("a", None)
    write("resources_servers/a/requirements.txt", "pytest\n")  # which is here already: no environment is built
    assert ng_servers.pip_list(ask("+entrypoint=resources_servers/a", "+json=true")) == 0
    found = {one["name"].lower(): one["version"] for one in json.loads(capsys.readouterr().out)}
    assert found["pytest"] == pytest.__version__


def test_a_new_server_is_begun_where_its_users_expect_it(capsys: Said) -> None:
    assert ng_servers.init_resources_server(ask("+entrypoint=resources_servers/crossword")) == 0
    assert Path("resources_servers/crossword/configs/crossword.yaml").exists()
    assert "gymnast check env crossword" in capsys.readouterr().out
    with pytest.raises(UserError, match="there is already"):
        ng_servers.init_resources_server(ask("+entrypoint=resources_servers/crossword"))
    with pytest.raises(FieldError, match="only resources_servers"):
        ng_servers.init_resources_server(ask("+entrypoint=responses_api_agents/x"))


# --- benchmarks ------------------------------------------------------------------------------------------------------

PREPARE = """
from pathlib import Path


def prepare(rows=2):
    print("making rows")
    path = Path("benchmarks/quiz/data/quiz.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"responses_create_params": {"input": "q"}}\\n' * rows)
    return path
"""


@pytest.fixture
def quiz() -> str:
    dataset = "{name: quiz, type: benchmark, jsonl_fpath: benchmarks/quiz/data/quiz.jsonl, "
    dataset += "prepare_script: benchmarks/quiz/prepare.py}"
    write(
        "benchmarks/quiz/config.yaml",
        "config_paths: [resources_servers/mcqa/configs/mcqa.yaml]\n"
        f"mcqa_simple_agent:\n  responses_api_agents:\n    simple_agent:\n      datasets: [{dataset}]\n",
    )
    write("benchmarks/quiz/prepare.py", PREPARE)
    return "+config_paths=[benchmarks/quiz/config.yaml]"


def test_benchmarks_are_listed_and_prepared(quiz: str, capsys: Said) -> None:
    assert ng_listing.list_benchmarks(ask("+json=true")) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["name"], found["path"]) == ("quiz", "benchmarks/quiz/config.yaml")
    assert ng_benchmarks.prepare_benchmark(ask(quiz, "+prepare_script_args.rows=3")) == 0
    said = capsys.readouterr()
    assert "making rows" in said.err
    assert len(Path("benchmarks/quiz/data/quiz.jsonl").read_text().splitlines()) == 3
    assert ng_benchmarks.prepare_benchmark(ask(quiz, "+use_cached_prepared_benchmarks=true")) == 0
    assert "(was there)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("return path", "return 'elsewhere.jsonl'"), "is not where its dataset is expected: elsewhere.jsonl"),
        (("    path.write_text", "    0 and path.write_text"), "is not there"),
        (("rows=2", "need"), "ended with code 1: TypeError"),
    ],
)
def test_a_script_that_does_not_do_its_work_is_named(
    quiz: str, changed: tuple[str, str], said: str, capsys: Said
) -> None:
    write("benchmarks/quiz/prepare.py", PREPARE.replace(*changed))
    assert ng_benchmarks.prepare_benchmark(ask(quiz)) == 1
    assert said in capsys.readouterr().err


def test_no_benchmarks_is_no_error(capsys: Said) -> None:
    assert ng_listing.list_benchmarks(ask()) == 0
    assert "nothing is there" in capsys.readouterr().err


# --- the viewer ------------------------------------------------------------------------------------------------------


def some_run() -> Path:
    response = {"id": "r", "object": "response", "output": [], "usage": {"output_tokens": 3}}
    row = {"responses_create_params": {"input": "q"}, "agent_ref": {"name": "a"}}
    keys = [{"_ng_task_index": task, "_ng_rollout_index": 0} for task in range(3)]
    write_jsonl(Path("x_materialized_inputs.jsonl"), [{**row, **key} for key in keys])
    return write_jsonl(Path("x.jsonl"), [{**row, "response": response, "reward": 0.5, **key} for key in keys])


def test_the_viewer_shows_the_report_on_this_machine_until_interrupted() -> None:
    some_run()
    words = [sys.executable, "-m", "gymnast.compat", "ng_viewer", "+jsonl_fpath=x.jsonl"]
    viewer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert viewer.stdout is not None
        url = viewer.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url) as answer:
            page = answer.read().decode()
        assert "<html" in page
        assert "0.5" in page
        for path, host, code in (("other", None, 404), ("", "evil.example:80", 403)):
            request = urllib.request.Request(url + path, headers={"Host": host} if host else {})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request)
            refused.value.close()
            assert refused.value.code == code
        viewer.send_signal(signal.SIGINT)
        _, err = viewer.communicate(timeout=10)
        assert viewer.returncode == 0, err
    finally:
        viewer.kill()
        viewer.communicate()
    assert not list(Path().glob("*report*"))


def test_the_viewer_refuses_other_machines_and_files_that_are_not_there() -> None:
    with pytest.raises(FieldError, match="on this machine only"):
        ng_viewer.viewer(ask("+jsonl_fpath=x.jsonl", "+server_host=0.0.0.0"))
    with pytest.raises(NotFoundError):
        ng_viewer.viewer(ask("+jsonl_fpath=x.jsonl"))


# --- datasets --------------------------------------------------------------------------------------------------------


class _Taking(BaseHTTPRequestHandler):
    """As much of a Hub as an upload asks for."""

    seen: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, body))
        url = f"http://{self.headers['Host']}"
        if "/preupload/" in self.path:
            files = [{**one, "uploadMode": "regular", "shouldIgnore": False} for one in json.loads(body)["files"]]
            return self._say({"files": files})
        if "/commit/" in self.path:
            return self._say({"commitUrl": f"{url}/datasets/org/name/commit/1", "commitOid": "1", "hookOutput": ""})
        return self._say({"url": f"{url}/datasets/org/name"})

    def _say(self, found: Any) -> None:
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Quiet."""


@contextmanager
def taking_hub() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    seen: list[tuple[str, bytes]] = []
    handler = type("Handler", (_Taking,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}", seen
        finally:
            listening.shutdown()
            thread.join()


def test_a_dataset_is_published_under_its_usual_name() -> None:
    write_jsonl(Path("train.jsonl"), example_rows("mcqa"))
    words = ["+input_jsonl_fpath=train.jsonl", "+hf_organization=org", "+dataset_name=Quiz", "+split=train"]
    words += ["+hf_token=t", "+resource_config_path=resources_servers/mcqa/configs/mcqa.yaml"]
    command = [sys.executable, "-m", "gymnast.compat", "ng_upload_dataset_to_hf", *words]
    with taking_hub() as (url, seen):
        env = {**os.environ, "HF_ENDPOINT": url, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "published  org/Nemotron-RL-knowledge-Quiz" in done.stdout
    assert b"private" in seen[0][1]
    commit = next(body for path, body in seen if "/commit/" in path)
    assert b'"path": "train.jsonl"' in commit


def test_rows_that_cannot_be_trained_on_are_not_published() -> None:
    write_jsonl(Path("train.jsonl"), [{"responses_create_params": {"input": "q"}}, {"question": "q"}])
    words = ("+input_jsonl_fpath=train.jsonl", "+hf_organization=org")
    with pytest.raises(FieldError, match="dataset_name"):
        ng_upload.upload_dataset_to_hf(ask(*words))
    with pytest.raises(UserError, match="needs responses_create_params") as refused:
        ng_upload.upload_dataset_to_hf(ask(*words, "+dataset_name=Quiz", "+split=train"))
    assert str(refused.value.where).endswith("train.jsonl line 2")


def test_registries_that_are_not_spoken_here_say_what_to_do() -> None:
    with pytest.raises(UserError, match="GitLab") as refused:
        ng_data.gitlab(ask())
    assert "ng_download_dataset_from_hf" in str(refused.value.next)
