"""Values that are written as overrides are the same once they are parsed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.compat.job_script import flat_words
from gymnast.config.overrides import parse_overrides
from gymnast.config.write_overrides import quote_override, write_value

TEXTS = st.text(st.characters(min_codepoint=32, exclude_characters="{}"), min_size=1)


def parse(text: str) -> Any:
    (parsed,) = parse_overrides([f"+key={text}"])
    return parsed.value


@given(TEXTS)
def test_texts(text: str) -> None:
    assert str(parse(quote_override(text))) == text


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, -2.5, 1e-7, "", "007", "1e5", "true", "null", "None", "x,y", "{q}", "a=b", "it's: x"),
        *("$HOME", " lead", "a:b", "two\nlines", "é (x)", "a\\", "[1]", [], {}, ["a,b", "c", None, 1]),
        [{"role": "user", "url": "http://a:80", "content": "Hi, {name}"}],
    ],
)
def test_values_of_a_file(value: Any) -> None:
    found = parse(write_value(value))
    assert found == value
    assert type(found) in {type(value), str} if isinstance(value, str) else type(found) is type(value)


def test_nested_settings_become_words() -> None:
    words = flat_words({"a": {"b": 1, "c": [1, "x"], "e": {}}, "d": True, "prompt": "Think, then answer: {question}"})
    assert words == ["+a.b=1", "+a.c=[1,x]", "+a.e={}", "+d=True", "+prompt='Think, then answer: {question}'"]
