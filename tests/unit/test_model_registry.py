"""Datasets in a GitLab model registry: up, down, deleted after a yes, and the token only where it belongs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gymnast.compat.gym_entry import run_gym
from gymnast.compat.ng import run_words, run_work
from gymnast.data.model_registry import ModelRegistry, RegistryFile, may_have_token
from gymnast.errors import NotFoundError, UserError
from tests.helpers.registry_server import TOKEN, LocalRegistry, serve_registry

ROWS = b'{"responses_create_params": {"input": "q"}}\n' * 3
FILE = RegistryFile("quiz", "0.0.1", "train.jsonl")
Said = pytest.CaptureFixture[str]


@pytest.fixture
def registry() -> Iterator[LocalRegistry]:
    with serve_registry() as running:
        yield running


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_bytes(ROWS)
    return tmp_path


def client(registry: LocalRegistry, token: str = TOKEN) -> ModelRegistry:
    return ModelRegistry(registry.url, token)


def write_env(registry: LocalRegistry) -> None:
    Path("env.yaml").write_text(f"mlflow_tracking_uri: {registry.url}\nmlflow_tracking_token: {TOKEN}\n")


def command(*words: str) -> int:
    return run_work(lambda: run_words(words[0], list(words[1:]))) if words[0].startswith("ng_") else run_gym(words)


# --- the registry ----------------------------------------------------------------------------------------------------


def test_a_file_comes_back_as_it_was_sent(registry: LocalRegistry) -> None:
    for proxied in (False, True):
        registry.proxied = proxied
        client(registry).upload("quiz", f"0.0.{int(proxied)}", Path("train.jsonl"))
        client(registry).download(RegistryFile("quiz", f"0.0.{int(proxied)}", "/train.jsonl"), Path("new/back.jsonl"))
        assert Path("new/back.jsonl").read_bytes() == ROWS


def test_a_second_file_goes_into_the_same_version(registry: LocalRegistry) -> None:
    Path("a b%.jsonl").write_bytes(b"{}\n")
    for name in ("train.jsonl", "a b%.jsonl"):
        client(registry).upload("quiz", "0.0.1", Path(name))
    assert registry.models == {"quiz": {"0.0.1": "run-quiz-0-0-1"}}
    assert set(registry.files["run-quiz-0-0-1"]) == {"train.jsonl", "a b%.jsonl"}


def test_a_version_that_is_pending_is_waited_for(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("gymnast.data.model_registry.time.sleep", pauses.append)
    registry.pending = 2
    client(registry).upload("quiz", "0.0.1", Path("train.jsonl"))
    assert len(pauses) == 2
    assert registry.files["run-quiz-0-0-1"] == {"train.jsonl": ROWS}


def test_what_is_not_there_is_reported_and_nothing_is_written(registry: LocalRegistry) -> None:
    with pytest.raises(NotFoundError, match=r"no version 0\.0\.1 of 'quiz'"):
        client(registry).download(FILE, Path("back.jsonl"))
    client(registry).upload("quiz", "0.0.1", Path("train.jsonl"))
    with pytest.raises(UserError, match="404"):
        client(registry).download(RegistryFile("quiz", "0.0.1", "other.jsonl"), Path("back.jsonl"))
    assert not Path("back.jsonl").exists()


def test_a_wrong_token_is_not_taken_for_a_dataset_that_is_missing(registry: LocalRegistry) -> None:
    wrong = client(registry, "wrong")
    for call in (
        lambda: wrong.upload("quiz", "0.0.1", Path("train.jsonl")),
        lambda: wrong.download(FILE, Path("back.jsonl")),
        lambda: wrong.has_dataset("quiz"),
    ):
        with pytest.raises(UserError, match="401") as refused:
            call()
        assert "token" in str(refused.value.next)
        assert "wrong" not in str(refused.value)
    assert not registry.models


def test_a_download_that_leads_to_another_server_takes_no_token_along(registry: LocalRegistry) -> None:
    client(registry).upload("quiz", "0.0.1", Path("train.jsonl"))
    with serve_registry() as store:
        registry.redirect = store.root.replace("127.0.0.1", "localhost") + "/bucket/train.jsonl"
        with pytest.raises(UserError, match="401"):
            client(registry).download(FILE, Path("back.jsonl"))
        assert [(method, path) for method, path, _ in store.seen] == [("GET", "/bucket/train.jsonl")]
        assert store.seen[0][2] is None


@pytest.mark.parametrize(
    ("address", "has_token"),
    [
        ("http://git.example/files/1", True),
        ("http://git.example:80/files/1", True),
        ("https://git.example/files/1", True),
        ("http://git.example:9000/files/1", False),
        ("https://git.example:9000/files/1", False),
        ("ftp://git.example/files/1", False),
        ("http://git.example.org/files/1", False),
    ],
)
def test_the_token_is_for_one_server_and_not_for_others_on_its_host(address: str, has_token: bool) -> None:  # noqa: FBT001
    assert may_have_token(address, "http://git.example/api") is has_token
    assert may_have_token("http://git.example/api", "https://git.example/api") is False


@pytest.mark.parametrize(
    "values",
    [{}, {"mlflow_tracking_uri": "http://x"}, {"mlflow_tracking_uri": "file:///x", "mlflow_tracking_token": "t"}],
)
def test_an_address_or_token_that_is_missing_is_reported(values: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="address"):
        ModelRegistry.from_values(values)


# --- the commands ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["gym", "ng"])
def test_a_dataset_goes_up_and_down_by_commands(form: str, registry: LocalRegistry, capsys: Said) -> None:
    write_env(registry)
    named = ["--name", "quiz", "--revision", "0.0.1"]
    up, down = ["dataset", "upload", "--storage", "gitlab"], ["dataset", "download", "--storage", "gitlab"]
    up += [*named, "--input", "train.jsonl"]
    down += [*named, "--artifact", "train.jsonl", "--output", "back.jsonl"]
    if form == "ng":
        up = ["ng_upload_dataset_to_gitlab", "+dataset_name=quiz", "+version=0.0.1", "+input_jsonl_fpath=train.jsonl"]
        down = ["ng_download_dataset_from_gitlab", "+dataset_name=quiz", "+version=0.0.1"]
        down += ["+artifact_fpath=train.jsonl", "+output_fpath=back.jsonl"]
    assert command(*up) == 0
    assert "gym dataset download --storage gitlab --name quiz" in capsys.readouterr().out
    assert command(*down) == 0
    assert Path("back.jsonl").read_bytes() == ROWS


def test_deleting_needs_a_yes(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    write_env(registry)
    assert command("gym", "dataset", "rm", "--name", "quiz") == 2  # not a command of `gym`
    assert command("dataset", "rm", "--name", "quiz") == 0
    assert "not in the registry" in capsys.readouterr().out
    client(registry).upload("quiz", "0.0.1", Path("train.jsonl"))
    for reply, left in (("", {"quiz"}), ("n", {"quiz"}), ("Yes", set[str]())):
        monkeypatch.setattr("builtins.input", lambda _, reply=reply: reply)
        assert command("ng_delete_dataset_from_gitlab", "+dataset_name=quiz") == 0
        assert set(registry.models) == left


def test_a_migrated_dataset_is_deleted_only_after_its_upload(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    write_env(registry)
    client(registry).upload("quiz", "0.0.1", Path("train.jsonl"))
    monkeypatch.setattr("builtins.input", lambda _: "y")
    words = ["+dataset_name=quiz", "+input_jsonl_fpath=train.jsonl", "+hf_organization=org"]

    class Hub:
        fails = True

        def publish(self, repo: str, *_: Any, **__: Any) -> str:
            if self.fails:
                raise UserError("the upload failed")
            return f"https://hub/{repo}"

    monkeypatch.setattr("gymnast.cli.data.make_hub", lambda _: Hub())
    assert command("ng_gitlab_to_hf_dataset", *words) == 1
    assert command("ng_upload_dataset_to_hf", *words, "+delete_from_gitlab=true") == 1
    assert set(registry.models) == {"quiz"}
    assert command("ng_gitlab_to_hf_dataset", *words, "+delete_from_gitlab=true") == 2
    monkeypatch.setattr(Hub, "fails", False)
    assert command("ng_upload_dataset_to_hf", *words) == 0
    assert set(registry.models) == {"quiz"}
    assert command("dataset", "migrate", *words) == 0
    assert not registry.models
    assert "deleted" in capsys.readouterr().out


def test_without_credentials_nothing_is_uploaded_to_the_hub(monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    monkeypatch.setattr("gymnast.cli.data.make_hub", lambda _: pytest.fail("it was asked"))
    words = ["+dataset_name=quiz", "+input_jsonl_fpath=train.jsonl", "+hf_organization=org"]
    assert command("ng_gitlab_to_hf_dataset", *words) == 1
    assert "mlflow_tracking_token" in capsys.readouterr().err
