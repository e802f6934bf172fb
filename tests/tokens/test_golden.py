"""What transformers renders and encodes, we render and encode."""

from __future__ import annotations

import json

import pytest

from gymnast.tokens.rendering import NotRenderable
from tests.tokens.conversations import FIXED, TOOLS
from tests.tokens.make_golden import GOLDEN, digest
from tests.tokens.pairs import BY_NAME, PAIRS, needs_cache, renderer

pytestmark = needs_cache


@pytest.mark.parametrize("name", [pair.name for pair in PAIRS])
def test_prompts_are_those_of_transformers(name: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    ours = renderer(name)
    compared = 0
    for title, messages in FIXED.items():
        for tools in ([], TOOLS):
            expected = golden[f"{name} / {title} / {'tools' if tools else 'no tools'}"]
            try:
                prompt = ours.prompt(messages, tools, BY_NAME[name].args)
            except NotRenderable:
                assert expected is None, title
                continue
            assert expected == [digest(ours.tokenizer.decode(prompt.ids)), digest(prompt.ids), len(prompt.ids)], title
            assert sum(count for _, count in prompt.sources) == len(prompt.ids)
            compared += 1
    assert compared >= 3
