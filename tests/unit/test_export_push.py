"""Uploads of exports: private by default, in an order that readers can use, continued where they stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gymnast.config.secrets import Scrubber
from gymnast.data.hub import Hub
from gymnast.errors import UserError
from gymnast.train.dataset.export import ExportRequest, export_dataset
from gymnast.train.dataset.files import CARD, MANIFEST
from tests.helpers.export_runs import rollout, says, write_run
from tests.helpers.upload_hub import USER, UploadHub, running_upload_hub

pytest.importorskip("huggingface_hub")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the library's own call


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[UploadHub]:
    monkeypatch.setattr("huggingface_hub._commit_api.is_xet_available", lambda: False)  # it has another protocol
    with running_upload_hub() as running:
        yield running


def export(tmp_path: Path, rewards: float = 1.0) -> tuple[Path, list[str]]:
    text = "word " * 300_000
    run = write_run(tmp_path / "r", [rollout(task, 0, rewards, [says(text)]) for task in range(6)])
    request = ExportRequest((run,), tmp_path / "o", "datasets", shard_bytes=1, overwrite=True)
    result = export_dataset(request, Scrubber(None))
    return result.folder, [*(file.path for file in result.files), MANIFEST, CARD]


def test_an_upload_is_private_and_its_card_comes_last(tmp_path: Path, hub: UploadHub) -> None:
    folder, names = export(tmp_path)
    url = Hub(endpoint=hub.url, token="t").publish_folder("org/d", folder, names, say=lambda _: None)
    assert url == f"{hub.url}/datasets/org/d"
    assert hub.visibility == {"org/d": "private"}
    assert hub.commits == names
    assert len(names) > 3
    assert hub.repos["org/d"] == {name: (folder / name).read_bytes() for name in names}


def test_an_interrupted_upload_continues_where_it_stopped(tmp_path: Path, hub: UploadHub) -> None:
    folder, names = export(tmp_path)
    client = Hub(endpoint=hub.url, token="t")

    def stop(text: str) -> None:
        if names[1] in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.publish_folder("org/d", folder, names, say=stop)
    assert hub.commits == names[:2]
    hub.refused = {names[2]}
    with pytest.raises(UserError, match="the upload failed"):
        client.publish_folder("org/d", folder, names, say=lambda _: None)
    hub.refused = set()
    export(tmp_path)  # the same files
    messages: list[str] = []
    client.publish_folder("org/d", folder, names, private=False, say=messages.append)
    assert hub.commits == names
    assert sum("is already there" in text for text in messages) == 2
    assert hub.visibility == {"org/d": "private"}
    client.publish_folder("org/d", folder, names, say=messages.append)
    assert hub.commits == names


def test_a_wrong_token_is_reported(tmp_path: Path, hub: UploadHub) -> None:
    folder, names = export(tmp_path)
    hub.token = "right"
    with pytest.raises(UserError, match=r"(?s)upload failed: .*401.*a token that may write to 'org/d'.*HF_TOKEN"):
        Hub(endpoint=hub.url, token="wrong").publish_folder("org/d", folder, names, say=lambda _: None)
    assert not hub.repos


def test_a_name_without_an_organization_is_a_dataset_of_the_user(tmp_path: Path, hub: UploadHub) -> None:
    """It was created in the user's name, and nothing was uploaded to it."""
    folder, names = export(tmp_path)
    url = Hub(endpoint=hub.url, token="t").publish_folder("d", folder, names, say=lambda _: None)
    assert url == f"{hub.url}/datasets/{USER}/d"
    assert set(hub.repos[f"{USER}/d"]) == set(names)


def test_a_private_export_does_not_go_to_a_public_dataset(tmp_path: Path, hub: UploadHub) -> None:
    folder, names = export(tmp_path)
    client = Hub(endpoint=hub.url, token="t")
    client.publish_folder("org/d", folder, names[:1], private=False, say=lambda _: None)
    assert hub.visibility == {"org/d": "public"}
    with pytest.raises(UserError, match=r"(?s)'org/d' exists and is public.*--public"):
        client.publish_folder("org/d", folder, names, say=lambda _: None)
    assert hub.commits == names[:1]
    client.publish_folder("org/private", folder, names[:1], say=lambda _: None)
    said: list[str] = []
    client.publish_folder("org/private", folder, names, private=False, say=said.append)
    assert "stays private" in said[0]
    assert hub.visibility["org/private"] == "private"
