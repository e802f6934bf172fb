"""`gymnast bundle`: one archive that says what happened and holds nothing secret; a process asks `gymnast doctor`."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import pytest

from tests.helpers.command_functions import invoke_command
from tests.helpers.commands import DEMO_POLICY
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl

SECRETS = {
    "environment": "env-4f9a1c77e2",
    "private file": "yaml-77e24f9a1c",
    "config": "conf-0c2d8ab91e",
    "header in a log": "head-c77e24f9a1",
    "assignment in a log": "hunter2-horse-staple",
    "key in a log": "sk-live51Hxq8Zt0vNw3",
    "nested json in a log": "nest-9d8c7b6a5f",
    "cookie in a log": "cook-1a2b3c4d5e",
    "url in a log": "pass-55aa66bb77",
    "failure body": "body-e1d2c3b4a5",
    "key block": "MIIBVgIBADANBgkqhkiG",
    "signed url": "sig-0099887766",
    "pair of headers": "pair-31415926ab",
    "quoted with spaces": "correct horse battery",
    "header in the config": "team-a1b2c3d4e5",
    "header in a failure": "fail-e5d4c3b2a1",
}


def log_text() -> str:
    return "\n".join(
        [
            "2026-01-01 12:00:00 ERROR the verifier raised LookupError('lost it')",
            f"request headers: Authorization: Bearer {SECRETS['header in a log']}",
            f"DB_PASSWORD={SECRETS['assignment in a log']} connecting",
            f"calling with {SECRETS['key in a log']}",
            'body={"config": "{\\"api_key\\": \\"' + SECRETS["nested json in a log"] + '\\"}"}',
            f"Set-Cookie: session={SECRETS['cookie in a log']}; Path=/",
            f"GET http://user:{SECRETS['url in a log']}@host/v1/models",
            f"-----BEGIN RSA PRIVATE KEY-----\n{SECRETS['key block']}\n-----END RSA PRIVATE KEY-----",
            f"GET https://store/file?sig={SECRETS['signed url']}&x=1",
            f"(b'x-api-key', b'{SECRETS['pair of headers']}')",
            f"client_secret: '{SECRETS['quoted with spaces']}'",
            f"the environment's key is {SECRETS['environment']}, the private one {SECRETS['private file']}",
            f"and that of the config {SECRETS['config']}",
            f"sent x-team: {SECRETS['header in the config']}",
            "max_tokens=4096 tokenizer=qwen total_tokens: 123456789 tokens_used=77",
        ]
    )


@pytest.fixture
def collected(tmp_path: Path) -> Path:
    """A run with failures, logs and secrets all over."""
    write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa"))
    (tmp_path / "env.yaml").write_text(f"policy_api_key: {SECRETS['private file']}\n")
    (tmp_path / "extra.yaml").write_text(
        f"judge_api_key: {SECRETS['config']}\nconcurrency: 3\n"
        f"default_headers: {{x-team: {SECRETS['header in the config']}}}\n"
    )
    done = invoke_command(
        tmp_path, "gymnast", "collect", "-e", "mcqa", "-c", DEMO_POLICY, "-i", "tasks.jsonl", "-o", "out/x.jsonl"
    )
    assert done.code == 0, done.err
    out = tmp_path / "out"
    (out / "x_logs").mkdir(exist_ok=True)
    (out / "x_logs" / "mcqa.log").write_text(log_text())
    failure = {
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "_ng_failure_class": "verifier_error",
        "responses_create_params": {"input": "the question nobody should read"},
        "failure": {
            "request_headers": {"x": SECRETS["header in a failure"]},
            "kind": "verifier_error",
            "body": json.dumps({"api_key": SECRETS["failure body"]}),
        },
        "request": {"headers": {"x-whatever": SECRETS["header in a failure"]}},
    }
    write_jsonl(out / "x_failures.jsonl", [failure] * 300)
    return out


def unpacked(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        files = ((entry.name, tar.extractfile(entry)) for entry in tar.getmembers())
        return {name.partition("/")[2]: stream.read().decode() for name, stream in files if stream is not None}


def test_a_bundle_says_what_happened_and_nothing_secret(collected: Path) -> None:
    env = {"SOME_API_KEY": SECRETS["environment"]}
    done = invoke_command(collected.parent, "gymnast", "bundle", "out/x.jsonl", "-c", "extra.yaml", env=env)
    assert done.code == 0, done.err
    archive = collected / "x_bundle.tar.gz"
    files = unpacked(archive)
    everything = gzip.decompress(archive.read_bytes()).decode(errors="replace") + done.out + done.err
    assert [what for what, secret in SECRETS.items() if secret in everything] == []
    expected = {"manifest.json", "versions.json", "status.json", "config.json", "files.json", "failures.jsonl"}
    assert expected | {"logs/mcqa.log", "doctor.json"} <= set(files)
    assert "nobody should read" not in everything
    assert "Paris" not in everything
    assert "LookupError('lost it')" in files["logs/mcqa.log"]
    assert "max_tokens=4096 tokenizer=qwen total_tokens: 123456789 tokens_used=77" in files["logs/mcqa.log"]
    assert json.loads(files["config.json"]) == {
        "extra.yaml": {"judge_api_key": "****", "concurrency": 3, "default_headers": {"x-team": "****"}}
    }
    assert json.loads(files["status.json"])["state"] == "complete"
    assert json.loads(files["manifest.json"])["counts"]["scored"] == 5
    assert json.loads(files["versions.json"])["packages"]["orjson"]
    rows = {entry["name"]: entry["lines"] for entry in json.loads(files["files.json"])}
    assert (rows["x.jsonl"], rows["x_failures.jsonl"]) == (5, 300)
    assert len(files["failures.jsonl"].splitlines()) == 100
    assert "200 of 300 failures" in done.out
    assert all(name in done.out for name in files)


def test_rollouts_only_on_request_and_without_secrets(collected: Path) -> None:
    rows = read_jsonl(collected / "x.jsonl")
    rows[0]["note"] = f"api_key={SECRETS['failure body']}"
    write_jsonl(collected / "x.jsonl", rows)
    done = invoke_command(
        collected.parent, "gymnast", "bundle", "out/x", "--with-rollouts", "2", "-o", "b.tar.gz", "--json"
    )
    assert done.code == 0, done.err
    files = unpacked(collected.parent / "b.tar.gz")
    assert len(files["rollouts.jsonl"].splitlines()) == 2
    assert "Paris" in files["rollouts.jsonl"]
    assert not any(SECRETS["failure body"] in text for text in files.values())
    assert done.json()["entries"].keys() == files.keys()


def test_the_size_is_bounded(collected: Path) -> None:
    for number in range(12):
        (collected / "x_logs" / f"many{number}.log").write_text("a line of words and figures 12345\n" * 20_000)
    done = invoke_command(collected.parent, "gymnast", "bundle", "out/x.jsonl", "--max-mb", "1", "--json")
    report = done.json()
    assert sum(report["entries"].values()) <= 1 << 20
    assert any("no room left" in text for text in report["left_out"])


def test_a_run_without_a_manifest_and_none_at_all(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "old.jsonl", [{"reward": 1.0}])
    assert invoke_command(tmp_path, "gymnast", "bundle", "old.jsonl").code == 0
    assert "unknown" in json.loads(unpacked(tmp_path / "old_bundle.tar.gz")["status.json"])
    assert invoke_command(tmp_path, "gymnast", "bundle", "nothing.jsonl").code == 2
