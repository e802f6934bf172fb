"""Causes of error replies by the words that serving stacks share, in messages that no signature knows."""

from __future__ import annotations

import json

import pytest

from gymnast.wire.endpoint_errors.diagnosis import diagnose


@pytest.mark.parametrize(
    ("status", "message", "cause"),
    [
        (429, "This team has used up the weekly allowance of the mill.", "quota"),
        (429, "You have spent your October quota.", "quota"),
        (503, "The weights are still being copied to node 3.", "loading"),
        (503, "Shard cache: 40% loaded", "loading"),
        (400, "Auto tool choice is not enabled for this mill.", "tool_parser_missing"),
        (429, "Too many calls this minute.", "rate_limit"),
        (503, "All mills are busy.", "overloaded"),
        (400, "'max_tokens' is not supported with this mill", "parameter_refused"),
        (401, "Your token is not valid any more.", "key_refused"),
        (403, "Permission: this team does not have any credits.", "quota"),
        (503, "no workers available for this mill", "gateway_down"),
        (500, "Jinja Exception: the first message must have another role", "history_refused"),
    ],
)
def test_causes_by_words_that_servers_share(status: int, message: str, cause: str) -> None:
    body = json.dumps({"error": {"message": message}})
    assert diagnose(status, body, path="/v1/chat/completions").cause.value == cause
