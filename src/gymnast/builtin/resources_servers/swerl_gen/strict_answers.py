"""Finds the patch or the script in an answer without insisting on one form: edits with or without tags, or a unified
diff. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from .edits import FENCE, EditError, apply_edits, find_edits, find_script

_THINKING: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_UNCLOSED: Final = re.compile(r"<think(?:ing)?>.*", re.IGNORECASE | re.DOTALL)
_TAG: Final = "<solution>"
_DIFF_START: Final = re.compile(r"^(?:diff --git |--- )", re.MULTILINE)


def find_strict_patch(text: str, files: Mapping[str, str], *, remove_repo_name: bool) -> str | None:
    """The patch of the last solution in an answer, or None."""
    text = final_text(text)
    try:
        changed = apply_edits(files, find_edits(text))
    except (EditError, TypeError):
        return None
    patches = [
        file_patch(path.partition("/")[2] if remove_repo_name else path, files.get(path), new)
        for path, new in changed.items()
    ]
    return "".join(patches) or find_diff(text)


def file_patch(name: str, old: str | None, new: str) -> str:
    """The patch of one file, new ones and ends without a line break included; empty if nothing changed."""
    lines = list(difflib.unified_diff(_lines(old or ""), _lines(new), f"a/{name}", f"b/{name}"))
    if not lines:
        return ""
    header = [f"diff --git a/{name} b/{name}\n"]
    if old is None:
        header, lines[0] = [*header, "new file mode 100644\n"], "--- /dev/null\n"
    return "".join([*header, *lines])


def _lines(text: str) -> list[str]:
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines


def find_strict_script(text: str) -> tuple[str, int] | None:
    """The last Python block of an answer."""
    script = find_script(final_text(text))
    return None if script is None else (script[0], 1)


def final_text(text: str) -> str:
    """The answer without leaked reasoning: the last solution, or all of it."""
    text = _UNCLOSED.sub("", _THINKING.split(text)[-1])
    return text.rpartition(_TAG)[2].partition("</solution>")[0] if _TAG in text else text


def find_diff(text: str) -> str | None:
    """The unified diff in the last fenced block that has one, or the text from its first line on."""
    blocks = [block.partition("\n")[2] for block in text.split(FENCE)[1::2]]
    for block in (*reversed(blocks), text):
        match = _DIFF_START.search(block)
        if match and "\n@@ " in block:
            return block[match.start() :].rstrip("\n") + "\n"
    return None
