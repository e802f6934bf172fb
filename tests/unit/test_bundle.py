"""What goes into a bundle of a run: bounded pieces of logs, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gymnast.config.secrets import Scrubber
from gymnast.store.bundle import head_and_tail
from gymnast.store.redact import Redactor


def test_heads_and_tails_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("".join(f"line {number}\n" for number in range(10_000)))
    text = head_and_tail(path, head_bytes=1000, tail_bytes=1000)
    lines = [line for line in text.split("\n") if line]
    assert lines[0] == "line 0"
    assert lines[-1] == "line 9999"
    assert len(text) < 2200
    assert all(line.startswith(("line ", "… ")) for line in lines)


@given(
    st.sampled_from(["api_key", "X-Api-Key", "HF_TOKEN", "password", "client_secret", "aws_secret_access_key"]),
    st.sampled_from(
        ["{}={}", '"{}": "{}"', "'{}': '{}'", "{}: {}", '\\"{}\\": \\"{}\\"', "('{}', '{}')", "--{}={} -v"]
    ),
    st.text("abcdefghijkXYZ0123456789_-+/", min_size=8, max_size=40).filter(
        lambda text: any(c.isalpha() for c in text)
    ),
)
@example("api_key", "{}={}", "000000+e")
def test_a_named_secret_never_stays(name: str, form: str, secret: str) -> None:
    assert secret not in Redactor(Scrubber()).text(f"before {form.format(name, secret)} after")


@given(st.text(max_size=200))
def test_redaction_takes_any_text(text: str) -> None:
    Redactor(Scrubber()).text(text)


KEY = "zq17be02c4d1a9f3"


@pytest.mark.parametrize(
    "line",
    [
        f"openai.AuthenticationError: Incorrect API key provided: {KEY}. You can find yours at https://x",
        f"wandb: logged in. API key {KEY}",
        f"vllm serve --model a --api-key {KEY} --port 8000",
        f"['vllm', 'serve', '--api-key', '{KEY}', '--port', '8000']",
        f"Namespace(model='a', api_key=['{KEY}', 'other-{KEY}'], port=1)",
        f"headers=[(b'authorization', b'Bearer {KEY}')]",
        f"GET /v1/models?api-key={KEY}&x=1 HTTP/1.1",
        f"postgres://svc:{KEY}@db/x",
        f"NEMO_GYM_CONFIG_DICT='policy_api_key: {KEY}'",
    ],
)
def test_keys_in_the_lines_that_programs_print(line: str) -> None:
    assert KEY not in Redactor(Scrubber()).text(line)


@pytest.mark.parametrize(
    "line",
    [
        "--max-tokens 4096 --tokenizer /models/a --port 8000",
        "the API key is missing or wrong",
        "set the right key (policy_api_key in env.yaml), then --resume --retry-failed",
        "usage: 12345 output_tokens, 7 reasoning_tokens, tokens_per_s 12.5",
    ],
)
def test_what_is_not_a_secret_stays(line: str) -> None:
    assert Redactor(Scrubber()).text(line) == line
