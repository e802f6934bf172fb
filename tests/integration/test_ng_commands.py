"""The `ng_` commands that start processes: tests of servers, their packages, scripts of benchmarks, viewer, uploads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gymnast.compat import ng_benchmarks, ng_listing, ng_servers
from gymnast.compat.ng_arguments import FieldError, NgArguments
from tests.helpers.commands import DEMO_POLICY, Outcome
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl
from tests.helpers.server_folders import write_file, write_server
from tests.integration.test_serving import tiny_wheel

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(*words: str) -> NgArguments:
    return NgArguments(words, values={})


# --- servers ---------------------------------------------------------------------------------------------------------


PASSES = "from resources_servers.{0}.app import ANSWER\n\n\ndef test_it():\n    assert ANSWER == 42\n"


def test_the_tests_of_all_servers_run_and_are_summed_up(capsys: Said) -> None:
    write_server("a", PASSES.format("a"))
    write_server("b", "def test_it():\n    assert False\n")
    write_server("c", None)
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
    write_server("a", PASSES.format("a"))
    write_file("resources_servers/a/requirements.txt", "none-such @ file:///nowhere/none_such-1-py3-none-any.whl\n")
    write_server("b", PASSES.format("b"))
    assert ng_servers.test_all(ask()) == 1
    output = capsys.readouterr()
    assert output.out.split("\n")[-3:-1] == ["failed   resources_servers/a", "passed   resources_servers/b"]
    assert Path("cache/logs/resources_servers-a.venv.log").exists()
    assert "resources_servers-a.venv.log" in output.err


def test_packages_of_a_server_are_listed(capsys: Said) -> None:
    write_server("a", None)
    write_file("resources_servers/a/requirements.txt", "pytest\n")  # which is here already: no environment is built
    assert ng_servers.pip_list(ask("+entrypoint=resources_servers/a", "+json=true")) == 0
    found = {one["name"].lower(): one["version"] for one in json.loads(capsys.readouterr().out)}
    assert found["pytest"] == pytest.__version__


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
    write_file(
        "benchmarks/quiz/config.yaml",
        "config_paths: [resources_servers/mcqa/configs/mcqa.yaml]\n"
        f"mcqa_simple_agent:\n  responses_api_agents:\n    simple_agent:\n      datasets: [{dataset}]\n",
    )
    write_file("benchmarks/quiz/prepare.py", PREPARE)
    return "+config_paths=[benchmarks/quiz/config.yaml]"


def test_benchmarks_are_listed_and_prepared(quiz: str, capsys: Said) -> None:
    assert ng_listing.list_benchmarks(ask("+json=true")) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["name"], found["path"]) == ("quiz", "benchmarks/quiz/config.yaml")
    assert ng_benchmarks.prepare_benchmark(ask(quiz, "+prepare_script_args.rows=3")) == 0
    output = capsys.readouterr()
    assert "making rows" in output.err
    assert len(Path("benchmarks/quiz/data/quiz.jsonl").read_text().splitlines()) == 3
    assert ng_benchmarks.prepare_benchmark(ask(quiz, "+use_cached_prepared_benchmarks=true")) == 0
    assert "(already there)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("return path", "return 'elsewhere.jsonl'"), "is not the expected file: elsewhere.jsonl"),
        (("    path.write_text", "    0 and path.write_text"), "does not exist"),
        (("rows=2", "need"), "exited with code 1: TypeError"),
    ],
)
def test_a_script_that_does_not_do_its_work_is_named(
    quiz: str, changed: tuple[str, str], said: str, capsys: Said
) -> None:
    write_file("benchmarks/quiz/prepare.py", PREPARE.replace(*changed))
    assert ng_benchmarks.prepare_benchmark(ask(quiz)) == 1
    assert said in capsys.readouterr().err


DRIVER = """
import json
from pathlib import Path


async def collect(settings, values):
    from nemo_gym.rollout_collection import RolloutCollectionHelper

    Path("driven.json").write_text(json.dumps([settings.input_jsonl_fpath, values["note"]]))
    await RolloutCollectionHelper().run_from_config(settings)
"""


def test_a_driver_of_the_checkout_collects(run: Callable[..., Outcome], here: Path) -> None:
    write_file("driver.py", DRIVER)
    configs = f"+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,{DEMO_POLICY}]"
    words = (configs, "+split=example", "+output_jsonl_fpath=x.jsonl", "+note=hello")
    done = run("ng_e2e_collect_rollouts", *words, "+rollout_collection_driver=driver:collect")
    assert done.code == 0, done.err
    source, note = json.loads((here / "driven.json").read_text())
    assert (Path(source).name, note) == ("example.jsonl", "hello")
    assert len(read_jsonl(here / "x.jsonl")) == 5
    for wrong in ("driver", "nowhere:collect", "driver:other"):
        assert run("ng_e2e_collect_rollouts", *words, f"+rollout_collection_driver={wrong}").code in {1, 2}


WITH_NEIGHBOURS = """
from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quiz.words import WORD
from .words import WORD as AGAIN


@dataclass
class Row:
    text: str


def prepare() -> Path:
    assert pickle.loads(pickle.dumps(Row(WORD + AGAIN))).text == "qq"
    path = Path(__file__).parent / "data" / "quiz.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"responses_create_params": {"input": "q"}}\\n')
    return path
"""


def test_a_script_is_imported_by_its_name_so_that_processes_and_neighbours_find_it(quiz: str) -> None:
    write_file("benchmarks/quiz/words.py", "WORD = 'q'\n")
    write_file("benchmarks/quiz/prepare.py", WITH_NEIGHBOURS)
    assert ng_benchmarks.prepare_benchmark(ask(quiz)) == 0
    assert len(Path("benchmarks/quiz/data/quiz.jsonl").read_text().splitlines()) == 1


def quiz_with_a_server(folder: Path, *, wheel: str) -> str:
    """A benchmark whose script imports a package that only its server lists."""
    write_server("quiz", None)
    write_file("resources_servers/quiz/requirements.txt", f"tinything @ {wheel}\n")
    dataset = "{name: quiz, type: benchmark, jsonl_fpath: benchmarks/quiz/data/quiz.jsonl, "
    dataset += "prepare_script: benchmarks/quiz/prepare.py}"
    server = "quiz: {resources_servers: {quiz: {entrypoint: app.py, domain: other}}}\n"
    agent = f"{{entrypoint: app.py, resources_server: {{name: quiz, type: resources_servers}}, datasets: [{dataset}], "
    agent += "model_server: {name: policy_model, type: responses_api_models}}"
    write_file("quiz.yaml", f"{server}quiz_agent: {{responses_api_agents: {{simple_agent: {agent}}}}}\n")
    write_file("benchmarks/quiz/prepare.py", PREPARE.replace("from pathlib", "import tinything\nfrom pathlib"))
    return "+config_paths=[quiz.yaml]"


def test_a_script_gets_the_packages_of_the_server_that_it_prepares_for(
    here: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMNAST_CACHE_DIR", str(here / "cache"))
    quiz = quiz_with_a_server(here, wheel=tiny_wheel(here).as_uri())
    assert ng_benchmarks.prepare_benchmark(ask(quiz)) == 0, capsys.readouterr().err
    message = capsys.readouterr().err
    assert "'tinything' is not installed here" in message
    assert "Traceback" not in message
    assert len(Path("benchmarks/quiz/data/quiz.jsonl").read_text().splitlines()) == 2


def test_a_package_that_a_script_misses_is_named_with_the_command_that_installs_it(quiz: str, capsys: Said) -> None:
    write_file("benchmarks/quiz/prepare.py", "import none_such.part\n" + PREPARE)
    assert ng_benchmarks.prepare_benchmark(ask(quiz)) == 1
    assert "-m pip install none_such" in capsys.readouterr().err


# --- the viewer ------------------------------------------------------------------------------------------------------


def some_run() -> Path:
    response = {"id": "r", "object": "response", "output": [], "usage": {"output_tokens": 3}}
    row = {"responses_create_params": {"input": "q"}, "agent_ref": {"name": "a"}}
    keys = [{"_ng_task_index": task, "_ng_rollout_index": 0} for task in range(3)]
    write_jsonl(Path("x_materialized_inputs.jsonl"), [{**row, **key} for key in keys])
    return write_jsonl(Path("x.jsonl"), [{**row, "response": response, "reward": 0.5, **key} for key in keys])


def test_the_viewer_shows_the_studio_on_this_machine_until_interrupted() -> None:
    some_run()
    words = [sys.executable, "-m", "gymnast.compat", "ng_viewer", "+jsonl_fpath=x.jsonl"]
    viewer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert viewer.stdout is not None
        url = viewer.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        base, _, token = url.partition("/?token=")
        bearer = {"Authorization": f"Bearer {token}"}
        with urllib.request.urlopen(urllib.request.Request(f"{base}/api/runs", headers=bearer)) as answer:
            assert '"x"' in answer.read().decode()
        for path, headers, code in (("/other", bearer, 404), ("/", {**bearer, "Host": "evil.example:80"}, 403)):
            request = urllib.request.Request(base + path, headers=headers)
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
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
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
