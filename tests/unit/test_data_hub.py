"""Downloads from a Hub: files, splits, what breaks, and what a preparation fetches."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymnast.data.fetch import FetchedFile, FetchRequest, fetch
from gymnast.data.hub import Hub
from gymnast.data.hub_layout import split_files
from gymnast.errors import DataError, NotFoundError, UserError
from tests.helpers.datasets import prepare_in, row, train
from tests.helpers.hub_server import LocalHub, Repo, running_hub
from tests.helpers.jsonl import read_jsonl, write_jsonl


@pytest.fixture
def local_hub() -> Iterator[LocalHub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture
def client(local_hub: LocalHub, tmp_path: Path) -> Hub:
    return Hub(endpoint=local_hub.url, cache_dir=tmp_path / "cache")


def outputs(tmp_path: Path) -> list[str]:
    folder = tmp_path / "got"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


LINES = b"".join(b'{"n": %d}\n' % number for number in range(100))


def test_one_artifact_is_fetched_byte_by_byte(local_hub: LocalHub, client: Hub, tmp_path: Path) -> None:
    local_hub.repos["org/d"] = Repo({"data/x.bin": b"\x00raw\xff"})
    target = tmp_path / "got" / "x.bin"
    assert fetch(FetchRequest("org/d", "data/x.bin", output=target), client) == [FetchedFile(target, 5)]
    assert target.read_bytes() == b"\x00raw\xff"
    fetch(FetchRequest("org/d", "data/x.bin", output_dir=tmp_path / "got"), client)
    assert outputs(tmp_path) == ["data/x.bin", "x.bin"]


def test_a_file_that_did_not_change_is_downloaded_once(local_hub: LocalHub, client: Hub, tmp_path: Path) -> None:
    local_hub.repos["org/d"] = Repo({"a.jsonl": LINES})
    for name in ("1.jsonl", "2.jsonl"):
        fetch(FetchRequest("org/d", "a.jsonl", output=tmp_path / "got" / name), client)
    assert sum(request.startswith("GET") for request in local_hub.seen) == 1
    local_hub.repos["org/d"] = Repo({"a.jsonl": b"new\n"})
    fetch(FetchRequest("org/d", "a.jsonl", output=tmp_path / "got" / "2.jsonl"), client)
    assert (tmp_path / "got" / "2.jsonl").read_bytes() == b"new\n"


def test_a_split_of_many_files_becomes_one_jsonl_of_one_commit(
    local_hub: LocalHub, client: Hub, tmp_path: Path
) -> None:
    files = {
        "data/train-00001.jsonl.gz": gzip.compress(b'{"n": 1}\n\n{"n": 2}'),
        "data/train-00000.jsonl": b'{"n": 0}',
        "data/train-00002.json": b' [{"n": 3}, {"n": 4}]',
        "data/test.jsonl": b'{"n": 9}\n',
        "README.md": b"",
    }
    local_hub.repos["org/d"] = Repo(files)
    target = tmp_path / "got" / "t.jsonl"
    (found,) = fetch(FetchRequest("org/d", split="train", output=target), client)
    assert found.rows == 5
    assert [one["n"] for one in read_jsonl(target)] == [0, 1, 2, 3, 4]
    commit = local_hub.repos["org/d"].commit
    assert all(f"/resolve/{commit}/" in request for request in local_hub.seen if "/resolve/" in request)


def test_all_splits_go_into_a_folder(local_hub: LocalHub, client: Hub, tmp_path: Path) -> None:
    local_hub.repos["org/d"] = Repo({"train.jsonl": LINES, "dev.jsonl": b'{"n": 1}\n'})
    found = fetch(FetchRequest("org/d", output_dir=tmp_path / "got"), client)
    assert outputs(tmp_path) == ["train.jsonl", "validation.jsonl"]
    assert [one.rows for one in found] == [100, 1]
    assert (tmp_path / "got" / "train.jsonl").read_bytes() == LINES


def test_a_broken_download_is_resumed_where_it_broke(local_hub: LocalHub, client: Hub, tmp_path: Path) -> None:
    content = LINES * 12_000  # more than the library writes in one piece
    local_hub.repos["org/d"] = Repo({"big.jsonl": content})
    local_hub.breaks = [len(content) - 1000]
    fetch(FetchRequest("org/d", "big.jsonl", output=tmp_path / "got" / "big.jsonl"), client)
    assert (tmp_path / "got" / "big.jsonl").read_bytes() == content
    assert "bytes=" in local_hub.seen[-1]


def test_a_download_that_comes_out_short_leaves_nothing(local_hub: LocalHub, client: Hub, tmp_path: Path) -> None:
    local_hub.repos["org/d"] = Repo({"train.jsonl": LINES, "test.jsonl": LINES + LINES})
    local_hub.shortfall = 10
    for request in (
        FetchRequest("org/d", "train.jsonl", output=tmp_path / "got" / "t.jsonl"),
        FetchRequest("org/d", output_dir=tmp_path / "got"),
    ):
        with pytest.raises(UserError, match="the download failed"):
            fetch(request, client)
    assert outputs(tmp_path) == []
    local_hub.shortfall = 0
    fetch(FetchRequest("org/d", output_dir=tmp_path / "got"), client)
    assert outputs(tmp_path) == ["test.jsonl", "train.jsonl"]


def test_a_later_split_that_fails_takes_the_earlier_ones_with_it(
    local_hub: LocalHub, client: Hub, tmp_path: Path
) -> None:
    local_hub.repos["org/d"] = Repo({"train.jsonl": LINES, "test.jsonl": b'{"n": 1}\n{"n": \n'})
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "train.jsonl").write_text("old\n")
    with pytest.raises(DataError, match="not JSON") as raised:
        fetch(FetchRequest("org/d", output_dir=tmp_path / "got"), client)
    assert raised.value.where == "org/d test.jsonl line 2"
    assert outputs(tmp_path) == ["train.jsonl"]
    assert (tmp_path / "got" / "train.jsonl").read_text() == "old\n"


def test_a_private_dataset_needs_its_token(local_hub: LocalHub, client: Hub, tmp_path: Path) -> None:
    local_hub.repos["org/p"] = Repo({"train.jsonl": LINES}, token="hf_right")
    for name, split in (("train.jsonl", None), (None, "train")):
        request = FetchRequest("org/p", name, split, output=tmp_path / "got" / "t.jsonl")
        for token in (None, "hf_wrong"):
            with pytest.raises(NotFoundError, match="private") as raised:
                fetch(request, Hub(token, local_hub.url, tmp_path / "other"))
            assert "hf_token" in str(raised.value.next)
            assert "hf_wrong" not in str(raised.value)
        assert outputs(tmp_path) == []
    fetch(request, Hub("hf_right", local_hub.url, tmp_path / "other"))
    assert (tmp_path / "got" / "t.jsonl").read_bytes() == LINES
    assert "hf_right" not in repr(Hub("hf_right"))


@pytest.mark.parametrize(
    ("request_fields", "text"),
    [
        ({"repo_id": "org/d", "artifact": "trian.jsonl"}, "did you mean 'train.jsonl'"),
        ({"repo_id": "org/none", "artifact": "a"}, "the Hub has no dataset 'org/none'"),
        ({"repo_id": "org/none", "split": "train"}, "the Hub has no dataset 'org/none'"),
        ({"repo_id": "org/gated", "split": "train"}, "'org/gated' is gated"),
        ({"repo_id": "a/b/c", "artifact": "a"}, "'a/b/c' is not a dataset name"),
        ({"repo_id": "org/d", "artifact": "train.jsonl", "revision": "v9"}, "has no revision 'v9'"),
        ({"repo_id": "org/d", "split": "validation"}, "has no split 'validation'"),
        ({"repo_id": "org/parquet", "split": "train"}, "stores its rows as .parquet"),
        ({"repo_id": "org/empty", "split": "train"}, "has no split 'train'"),
        ({"repo_id": "org/configs", "split": "train"}, "several configurations and no default: a, b"),
        ({"repo_id": "org/torn", "split": "train"}, "cannot read the file"),
        ({"repo_id": "org/list", "split": "train"}, "the row is not a JSON object"),
    ],
)
def test_what_the_hub_cannot_give_is_explained(
    local_hub: LocalHub, client: Hub, tmp_path: Path, request_fields: dict[str, str], text: str
) -> None:
    configs = [{"config_name": name, "data_files": f"{name}.jsonl"} for name in "ab"]
    local_hub.repos |= {
        "org/d": Repo({"train.jsonl": LINES}),
        "org/gated": Repo({"train.jsonl": LINES}, gated=True),
        "org/parquet": Repo({"data/train-0.parquet": b"PAR1"}),
        "org/empty": Repo({"README.md": b""}),
        "org/configs": Repo({"a.jsonl": LINES, "b.jsonl": LINES}, card={"configs": configs}),
        "org/torn": Repo({"train.jsonl.gz": gzip.compress(LINES)[:-20]}),
        "org/list": Repo({"train.json": b"[1]"}),
    }
    with pytest.raises(UserError) as raised:
        fetch(FetchRequest(**request_fields, output=tmp_path / "got" / "x"), client)  # type: ignore[arg-type]  # texts only
    assert text in str(raised.value)
    assert outputs(tmp_path) == []


@pytest.mark.parametrize(
    ("artifact", "split", "output", "folder", "text"),
    [
        (None, "train", None, None, "give one of"),
        (None, "train", "o", "d", "give one of"),
        ("a", "train", "o", None, "mutually exclusive"),
        (None, None, "o", None, "one output file holds one artifact or one split"),
    ],
)
def test_fields_that_do_not_go_together_are_refused_before_anything_is_asked(
    artifact: str | None, split: str | None, output: str | None, folder: str | None, text: str
) -> None:
    request = FetchRequest("org/d", artifact, split, Path(output) if output else None, Path(folder) if folder else None)
    with pytest.raises(UserError, match=text):
        fetch(request, Hub(endpoint="http://127.0.0.1:9"))


def card(data_files: Any) -> dict[str, Any]:
    """A repository's card with one configuration."""
    return {"configs": [{"config_name": "default", "data_files": data_files}]}


@pytest.mark.parametrize(
    ("files", "metadata", "expected"),
    [
        (["train.jsonl", "README.md", ".gitattributes"], {}, {"train": ["train.jsonl"]}),
        (["b.jsonl", "a.jsonl"], {}, {"train": ["a.jsonl", "b.jsonl"]}),
        (
            ["train/0.json", "val/0.json", "eval.csv"],
            {},
            {"train": ["train/0.json"], "validation": ["val/0.json"], "test": ["eval.csv"]},
        ),
        (["training_set.jsonl", "strain.jsonl"], {}, {"train": ["training_set.jsonl"]}),
        (["my.jsonl", "x.jsonl"], card("my.jsonl"), {"train": ["my.jsonl"]}),
        (
            ["d/a-0.jsonl", "d/a-1.jsonl", "d/b.jsonl"],
            card([{"split": "train", "path": "d/a-*"}, {"split": "hard", "path": ["d/b.jsonl"]}]),
            {"train": ["d/a-0.jsonl", "d/a-1.jsonl"], "hard": ["d/b.jsonl"]},
        ),
        (["train.jsonl"], card(None), {"train": ["train.jsonl"]}),
        ([], {}, {}),
    ],
)
def test_splits_are_what_the_card_or_the_file_names_say(
    files: list[str], metadata: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    assert split_files(files, metadata) == expected


def test_preparation_fetches_what_is_missing_and_nothing_else(local_hub: LocalHub, client: Hub, tmp_path: Path) -> None:
    rows = [row("a"), row("b")]
    lines = b"".join(orjson.dumps(one) + b"\n" for one in rows)
    local_hub.repos["org/a"] = Repo({"a/file.jsonl": lines, "train.jsonl": lines[: lines.index(b"\n") + 1]})
    write_jsonl(tmp_path / "here.jsonl", rows)
    source = {"type": "huggingface", "repo_id": "org/a"}
    prepare_in(
        tmp_path,
        train("data/one.jsonl", source={**source, "artifact_fpath": "a/file.jsonl"}),
        train("data/two.jsonl", huggingface_identifier={"repo_id": "org/a"}),
        train("here.jsonl", source=source),
        hub=client,
        download=True,
    )
    assert (tmp_path / "data" / "one.jsonl").read_bytes() == lines
    assert len(read_jsonl(tmp_path / "data" / "two.jsonl")) == 1
    assert len(read_jsonl(tmp_path / "out" / "train.jsonl")) == 5


@pytest.mark.parametrize(
    ("dataset", "options", "text"),
    [
        (train("a.jsonl"), {}, "has no source"),
        (
            train("a.jsonl", gitlab_identifier={"dataset_name": "d", "version": "1", "artifact_fpath": "f"}),
            {},
            "GitLab model registry",
        ),
        (
            train(
                "a.jsonl",
                gitlab_identifier={"dataset_name": "d", "version": "1", "artifact_fpath": "f"},
                huggingface_identifier={"repo_id": "org/a"},
            ),
            {"data_source": "gitlab"},
            "GitLab model registry",
        ),
        (
            {
                "name": "e",
                "type": "example",
                "jsonl_fpath": "e.jsonl",
                "source": {"type": "huggingface", "repo_id": "org/a"},
            },
            {"mode": "example_validation"},
            "does not name its file",
        ),
    ],
)
def test_what_cannot_be_fetched_is_reported_before_anything_is(
    tmp_path: Path,
    local_hub: LocalHub,
    client: Hub,
    dataset: dict[str, Any],
    options: dict[str, Any],
    text: str,
) -> None:
    fetchable = train("b.jsonl", source={"type": "huggingface", "repo_id": "org/a", "artifact_fpath": "f.jsonl"})
    with pytest.raises(UserError, match=text):
        prepare_in(tmp_path, fetchable, dataset, hub=client, download=True, **options)
    assert local_hub.seen == []
