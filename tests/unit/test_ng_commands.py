"""The `ng_` commands that are not collecting: each exists, says what it does, does it, and fails in words."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gymnast.compat import ng, ng_listing, ng_servers, ng_upload, ng_viewer
from gymnast.compat.ng_arguments import FieldError, NgArguments
from gymnast.errors import NotFoundError, UserError
from tests.helpers.jsonl import write_jsonl
from tests.helpers.server_folders import write_file, write_server

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


def ask(*words: str, **values: Any) -> NgArguments:
    return NgArguments(words, values=values)


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
        ("test", ["--entrypoint"], 2, "has no option --entrypoint"),
        ("test", [], 1, "no servers found"),
        ("test", ["+entrypoint=resources_servers/nope"], 1, "does not exist"),
        ("validate", ["+config_paths=[a.yaml"], 1, "close the bracket: [ without ]"),
        ("aggregate_rollouts", ["+input_glob=*.jsonl", "+output_jsonl_fpath=x.jsonl"], 1, "there is no file"),
        ("list_benchmarks", ["+json=maybe"], 2, "json must be true or false"),
        ("download_dataset_from_gitlab", [], 2, "+dataset_name=… is required"),
        ("delete_dataset_from_gitlab", ["+dataset_name=x"], 1, "mlflow_tracking_token"),
    ):
        monkeypatch.setattr(sys, "argv", [f"ng_{name}", *words])
        with pytest.raises(SystemExit) as ended:
            getattr(ng, name)()
        assert ended.value.code == code, words
        assert said in capsys.readouterr().err


# --- servers ---------------------------------------------------------------------------------------------------------


def test_an_unknown_entrypoint_names_the_server_that_is_meant() -> None:
    write_server("quiz", None)
    (Path("resources_servers") / ".gitignore").touch()
    for wrong in ("quiz", "resources_servers/quizz", "resources_server/quiz"):
        with pytest.raises(NotFoundError) as caught:
            ng_servers.test(ask(f"+entrypoint={wrong}"))
        assert caught.value.next == "did you mean 'resources_servers/quiz'?"


def test_example_data_is_five_rows_their_metrics_and_five_rollouts(capsys: Said) -> None:
    folder = write_server("a", None)
    assert ng_servers.test_all(ask("+should_validate_data=true")) == 1
    assert capsys.readouterr().err.count("problem:") == 3
    (folder / "data").mkdir()
    for name in ("example", "example_rollouts"):
        write_jsonl(folder / "data" / f"{name}.jsonl", [{}] * 5)
    write_file("resources_servers/a/data/example_metrics.json", '{"Number of examples": 5}')
    assert ng_servers.test_all(ask("+should_validate_data=true")) == 0
    write_file("resources_servers/a/data/example_metrics_conflict.json", "{}")
    assert ng_servers.test_all(ask("+should_validate_data=true")) == 1
    assert "unresolved metrics conflict" in capsys.readouterr().err


def test_a_folder_without_servers_is_said() -> None:
    with pytest.raises(NotFoundError, match="no servers found"):
        ng_servers.test_all(ask())
    for command in (ng_servers.dev_test, ng_servers.reinstall):
        with pytest.raises(NotFoundError):
            command(ask())


def test_a_new_server_is_begun_where_its_users_expect_it(capsys: Said) -> None:
    assert ng_servers.init_resources_server(ask("+entrypoint=resources_servers/crossword")) == 0
    assert Path("resources_servers/crossword/configs/crossword.yaml").exists()
    assert "gymnast check env crossword" in capsys.readouterr().out
    with pytest.raises(UserError, match="already exists"):
        ng_servers.init_resources_server(ask("+entrypoint=resources_servers/crossword"))
    with pytest.raises(FieldError, match="can only create resources_servers"):
        ng_servers.init_resources_server(ask("+entrypoint=responses_api_agents/x"))


# --- benchmarks ------------------------------------------------------------------------------------------------------


def test_no_benchmarks_is_no_error(capsys: Said) -> None:
    assert ng_listing.list_benchmarks(ask()) == 0
    assert "none found" in capsys.readouterr().err


# --- the viewer ------------------------------------------------------------------------------------------------------


def test_the_viewer_refuses_other_machines_and_files_that_are_not_there() -> None:
    with pytest.raises(FieldError, match="on this machine only"):
        ng_viewer.viewer(ask("+jsonl_fpath=x.jsonl", "+server_host=0.0.0.0"))
    with pytest.raises(NotFoundError):
        ng_viewer.viewer(ask("+jsonl_fpath=x.jsonl"))


# --- datasets --------------------------------------------------------------------------------------------------------


def test_rows_that_cannot_be_trained_on_are_not_published() -> None:
    write_jsonl(Path("train.jsonl"), [{"responses_create_params": {"input": "q"}}, {"question": "q"}])
    words = ("+input_jsonl_fpath=train.jsonl", "+hf_organization=org")
    with pytest.raises(FieldError, match="dataset_name"):
        ng_upload.upload_dataset_to_hf(ask(*words))
    with pytest.raises(UserError, match="needs responses_create_params") as refused:
        ng_upload.upload_dataset_to_hf(ask(*words, "+dataset_name=Quiz", "+split=train"))
    assert str(refused.value.where).endswith("train.jsonl line 2")
