r"""Extracts answers from a model's text: `\boxed{…}` with balanced braces. Pure functions."""

from __future__ import annotations

import re

_BRACE = re.compile(r"\\[{}]|\\boxed\s*\{|\{|\}")
_TEXT_BRACE = re.compile(r"\\[{}]|\\(?:text|textbf|textit|mathrm|mathbf)\s*\{|\{|\}")


def find_boxed(text: str) -> list[str]:
    r"""The content of every `\boxed{…}`, in order of their start. Unbalanced ones are omitted.

    One pass with a stack: linear time for text of any size and nesting.
    """
    boxes: list[tuple[int, str]] = []
    open_braces: list[int | None] = []
    for match in _BRACE.finditer(text):
        brace = match[0]
        if brace == "}":
            start = open_braces.pop() if open_braces else None
            if start is not None:
                boxes.append((start, text[start : match.start()]))
        elif brace[0] == "{" or brace.startswith("\\boxed"):
            open_braces.append(None if brace[0] == "{" else match.end())
    return [content for _, content in sorted(boxes)]


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{…}`."""
    text = text[: text.rfind("}") + 1]  # what follows is never closed
    start = text.rfind("\\boxed")
    if start < 0:
        return None
    boxes = find_boxed(text[start:]) or find_boxed(text)  # the last one is nearly always complete
    return boxes[-1] if boxes else None


def unwrap_text(content: str) -> str:
    r"""Replace `\text{B}` with `B`, at any depth, in one pass. Unbalanced ones are unchanged."""
    if "\\" not in content:
        return content.strip()
    cuts: list[tuple[int, int]] = []
    open_braces: list[re.Match[str]] = []
    for match in _TEXT_BRACE.finditer(content):
        if match[0] == "}":
            start = open_braces.pop() if open_braces else None
            if start is not None and start[0] != "{":
                cuts += [start.span(), match.span()]
        elif match[0] == "{" or len(match[0]) > 2:
            open_braces.append(match)
    parts, at = [], 0
    for begin, end in sorted(cuts):
        parts.append(content[at:begin])
        at = end
    return "".join([*parts, content[at:]]).strip()
