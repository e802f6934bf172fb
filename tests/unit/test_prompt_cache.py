"""Prompts are rendered once for a group, and never mistaken for each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gymnast.tokens.families.registry import get_family
from gymnast.tokens.load import load_renderer
from gymnast.tokens.prompt_cache import PromptCache
from gymnast.tokens.rendering import Rendered
from gymnast.tokens.template import TemplateRenderer
from gymnast.types.tokens import Source
from tests.unit.test_rendering import CHATML, write_tokenizer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text(max_size=2), child, max_size=3),
    max_leaves=6,
)


def prompt(number: int, length: int = 1) -> Rendered:
    return Rendered((number,) * length, ((Source.USER, length),))


@given(st.lists(st.tuples(JSON, JSON), max_size=12))
def test_a_prompt_is_that_of_its_own_parts(requests: list[tuple[Any, Any]]) -> None:
    """Values that Python takes for equal (True and 1) or that differ in the order of keys are different prompts."""
    cache = PromptCache(max_ids=5)
    for parts in requests:
        made = cache.get(parts, lambda parts=parts: Rendered(tuple(repr(parts).encode()), ()))  # type: ignore[misc]
        assert made.ids == tuple(repr(parts).encode())


def test_it_keeps_the_last_ones_within_its_size() -> None:
    cache = PromptCache(max_ids=10)
    rendered: list[int] = []

    def ask(number: int, length: int = 4) -> None:
        def render() -> Rendered:
            rendered.append(number)
            return prompt(number, length)

        assert cache.get([number], render) == prompt(number, length)

    for number in (1, 2, 1, 3, 1, 2):
        ask(number)
    assert rendered == [1, 2, 3, 2], "the one used longest ago went first"
    ask(9, length=50)
    ask(9, length=50)
    assert rendered[-2:] == [9, 9], "one that is larger than the cache is not kept"


def test_what_is_not_json_is_rendered_every_time() -> None:
    cache = PromptCache()
    times = 0

    def render() -> Rendered:
        nonlocal times
        times += 1
        return prompt(times)

    for _ in range(2):
        cache.get([object()], render)
    assert times == 2


def test_a_template_with_the_time_is_rendered_again_when_time_passes(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    known = load_renderer(write_tokenizer(tmp_path, chat_template=CHATML))
    source = "{{ strftime_now('%d %b') }}" + CHATML
    renderer = TemplateRenderer(known.tokenizer, source, get_family("qwen2_5"), clock=lambda: now)
    message = [{"role": "user", "content": "a"}]
    first = renderer.prompt(message, [], {})
    assert renderer.prompt(message, [], {}) is first
    now += timedelta(days=1)
    assert renderer.prompt(message, [], {}) != first
