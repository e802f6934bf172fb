"""Texts from models, servers and files reach a terminal as text, never as commands to it."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.cli.safe_output import make_safe_console, protect_terminal, without_controls


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ATTACKS = {
    "clipboard": "a\x1b]52;c;ZXZpbA==\x07b",
    "clipboard, other end": "a\x1b]52;c;ZXZpbA==\x1b\\b",
    "unterminated": "ab\x1b]0;title",
    "colour": "a\x1b[31mb",
    "cursor": "a\x1b[2J\x1b[1;1Hb",
    "device control": "a\x1bP$q\x1b\\b",
    "reset": "a\x1bcb",
    "single-byte CSI": "a\x9b31mb",
    "bell and backspace": "a\x07\x08b",
    "carriage return inside": "a\x0e\x0fb",
}


@pytest.mark.parametrize("text", ATTACKS.values(), ids=list(ATTACKS))
def test_control_sequences_are_removed(text: str) -> None:
    plain = without_controls(text)
    assert plain in {"ab", "a31mb"}
    assert plain.isprintable()


@given(st.text())
def test_what_is_left_has_no_controls_and_printable_text_is_unchanged(text: str) -> None:
    plain = without_controls(text)
    assert not any(ord(character) < 32 and character not in "\t\n\r" for character in plain)
    assert "\x1b" not in plain
    if text.isprintable():
        assert plain == text


def test_prints_and_tables_are_filtered_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", pipe)
    protect_terminal()
    sys.stdout.write(ATTACKS["clipboard"] + " line\nnext\ttab\n")
    sys.stderr.write(ATTACKS["colour"])
    make_safe_console(force_terminal=True).print(f"[bold]{ATTACKS['clipboard']}[/bold]")
    shown = terminal.getvalue()
    assert shown.startswith("ab line\nnext\ttab\n")
    assert "]52" not in shown
    assert "\x1b[1mab\x1b[0m" in shown, "our own styles pass"
    assert pipe.getvalue() == ATTACKS["colour"]
