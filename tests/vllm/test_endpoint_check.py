"""`gymnast check endpoint` on a real vLLM."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.commands import run_command
from tests.vllm.conftest import CONTEXT, Model


def test_what_vllm_can_do_is_found_out_with_few_tokens(tiny: Model, tmp_path: Path) -> None:
    done = run_command(tmp_path, "gymnast", "check", "endpoint", tiny.root, "--json", "--need", "token_ids")
    assert done.code == 0, done.out + done.err
    report = done.json()
    found = {check["name"]: check for check in report["checks"]}
    for name in ("models", "answer", "usage", "streaming", "logprobs", "token_ids", "context"):
        assert found[name]["status"] == "pass", found[name]
    assert str(CONTEXT) in found["context"]["said"]
    assert found["tools_auto"]["status"] == "unsupported"  # started without --enable-auto-tool-choice
    assert "--enable-auto-tool-choice" in found["tools_auto"]["next"]
    assert report["tokens_used"] < 500
    assert report["model"] == "tiny"
