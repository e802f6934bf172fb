"""A GitLab model registry that MLflow's own client fills is read by ours, and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymnast.data.model_registry import ModelRegistry, RegistryFile
from tests.helpers.registry_server import TOKEN, LocalRegistry, serve_registry

mlflow = pytest.importorskip("mlflow")
ROWS = b'{"responses_create_params": {"input": "q"}}\n' * 3


def test_mlflow_and_gymnast_share_a_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    source = tmp_path / "train.jsonl"
    source.write_bytes(ROWS)
    with serve_registry() as registry:
        ours = ModelRegistry(registry.url, TOKEN)
        upload_with_mlflow(registry, "theirs", source)
        ours.download(RegistryFile("theirs", "0.0.1", "train.jsonl"), tmp_path / "theirs.jsonl")
        assert (tmp_path / "theirs.jsonl").read_bytes() == ROWS
        first = list(registry.seen)
        registry.seen.clear()
        ours.upload("ours", "0.0.1", source)
        calls = [(method, path.replace("ours", "theirs")) for method, path, _ in registry.seen]
        assert calls == [(method, path) for method, path, _ in first[: len(calls)]]  # the same requests
        assert download_with_mlflow(registry, "ours", tmp_path) == ROWS
        client = mlflow.MlflowClient(tracking_uri=registry.url)
        assert client.get_registered_model("ours").name == "ours"
        ours.delete_dataset("ours")
        client.delete_registered_model("theirs")
        assert not registry.models


def upload_with_mlflow(registry: LocalRegistry, name: str, path: Path) -> None:
    client = mlflow.MlflowClient(tracking_uri=registry.url)
    client.create_registered_model(name)
    with pytest.raises(mlflow.exceptions.RestException):
        client.get_model_version(name, "0.0.1")
    version = client.create_model_version(name, "0.0.1", tags={"gitlab.version": "0.0.1"})
    client.log_artifact(version.run_id, str(path), artifact_path="")


def download_with_mlflow(registry: LocalRegistry, name: str, folder: Path) -> bytes:
    client = mlflow.MlflowClient(tracking_uri=registry.url)
    run = client.get_model_version(name, "0.0.1").run_id
    repository = mlflow.artifacts.get_artifact_repository(artifact_uri=f"runs:/{run}", tracking_uri=registry.url)
    repository.repo._download_file("train.jsonl", str(folder / "mlflow.jsonl"))
    return (folder / "mlflow.jsonl").read_bytes()
