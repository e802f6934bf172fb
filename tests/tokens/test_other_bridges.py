"""Our Qwen3 bridge against the one of the PyPI package `renderers`, on the same random conversations."""

from __future__ import annotations

import json

from gymnast.tokens.rendering import Extension, Refusal
from tests.tokens.conversations import TOOLS
from tests.tokens.make_bridges import BRIDGES, turns
from tests.tokens.make_golden import digest
from tests.tokens.pairs import needs_cache, renderer
from tests.tokens.turns import ids_of, texts, write_hermes

pytestmark = needs_cache


def test_the_qwen3_bridge_agrees_with_renderers() -> None:
    ours = renderer("qwen3")
    agreed, refused, only_ours = 0, 0, 0
    for (before, message, new, is_cut_off), theirs in zip(turns(), json.loads(BRIDGES.read_text()), strict=True):
        prompt = ours.prompt(before, TOOLS, {})
        sampled = ids_of(ours, write_hermes(message) + ("" if is_cut_off else "<|im_end|>"))
        bridge = ours.bridge([*before, message], sampled, new, TOOLS, {})
        if isinstance(bridge, Refusal):
            assert theirs is None
            refused += 1
            continue
        ids = [*prompt.ids, *sampled, *bridge.delta.ids]
        if theirs is None:
            # It refuses every user's message; the template only rewrites turns that thought.
            whole = ours.prompt([*before, message, *new], TOOLS, {})
            assert texts(ours, ids) == texts(ours, whole.ids)
            only_ours += 1
            continue
        assert isinstance(bridge, Extension)
        assert theirs == [is_cut_off, len(ids), digest(ids)]
        agreed += 1
    assert agreed > 50
    assert refused > 20
    assert only_ours < agreed
