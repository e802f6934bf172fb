"""SEARCH/REPLACE edits in an answer: found, applied to the files that the model saw, and turned into a patch. Pure.

The rules, odd ones included, are NeMo Gym's: an edit is found by its exact form, must match the start of a line, and
names a path as it was shown. The patch that results is what `git apply` gets.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Final

FENCE: Final = "```"
_SEARCH: Final = "<<<<<<< SEARCH"
_MIDDLE: Final = "\n=======\n"
_REPLACE: Final = "\n>>>>>>> REPLACE"
_END: Final = re.compile(rf"\n*{FENCE}")
_SPACE: Final = re.compile(r"\s*")
_SCRIPT: Final = re.compile(r"^-+\s*\n(#!/usr/bin/env python.*?)(?=\n-+\s*$|\Z)", re.MULTILINE | re.DOTALL)
_SHEBANG: Final = "#!/usr/bin/env python"
Edit = tuple[str, str]


class EditError(ValueError):
    """The answer has no edits that can be applied."""


def solution_text(text: str, *, relaxed: bool) -> str:
    """The text between the solution tags, after the reasoning; relaxed, all text if there are none."""
    tagged = "<solution>" in text and "</solution>" in text
    if not tagged and not relaxed:
        raise EditError("no <solution>")
    if "<think>" in text and "</think>" in text:
        text = text.rsplit("</think>", maxsplit=1)[-1].strip()
    if relaxed and not ("<solution>" in text and "</solution>" in text):
        return text
    _, begin, rest = text.partition("<solution>")
    if not begin:
        raise EditError("no <solution> after the reasoning")
    return rest.partition("<solution>")[0].partition("</solution>")[0].strip()


def find_edits(text: str) -> dict[str, list[Edit]]:
    """All edits by path, in order, each once. Linear in the text, whatever it repeats."""
    edits: dict[str, list[Edit]] = {}
    at = text.find(FENCE)
    while at >= 0:
        headers = _read_headers(text, at)
        if not headers:
            at = text.find(FENCE, at + 1)
            continue
        match = next(filter(None, (_read_edit(text, *header) for header in headers)), None)
        if match is None:
            break  # nor has any later one an end
        path, edit, end = match
        same_file = edits.setdefault(path, [])
        if edit not in same_file:
            same_file.append(edit)
        at = text.find(FENCE, end)
    return edits


def _read_headers(text: str, fence: int) -> list[tuple[str, int]]:
    """The path on the line after the fence, and where the searched text begins; at most two readings."""
    line = text.find("\n", fence)
    if line < 0 or not text.startswith("\n### ", line):
        return []
    begin = line + len("\n### ")
    end = text.find("\n", begin)
    end = len(text) if end < 0 else end
    space = _SPACE.match(text, end)
    after = space.end() if space else end
    headers = []
    if text.startswith(f"{_SEARCH}\n", after):
        headers.append((text[begin:end], after + len(_SEARCH) + 1))
    if text[begin:end].endswith(_SEARCH) and end < len(text):  # both on one line
        headers.append((text[begin : end - len(_SEARCH)], end + 1))
    return headers


def _read_edit(text: str, path: str, begin: int) -> tuple[str, Edit, int] | None:
    """The path, the edit, and where its fence ends."""
    middle = text.find(_MIDDLE, begin)
    end = _find_end(text, middle + len(_MIDDLE)) if middle >= 0 else None
    if end is None:
        return None
    return path, (text[begin:middle], text[middle + len(_MIDDLE) : end[0]]), end[1]


def _find_end(text: str, begin: int) -> tuple[int, int] | None:
    """Where the replacement ends, and where its fence ends."""
    at = text.find(_REPLACE, begin)
    while at >= 0:
        fence = _END.match(text, at + len(_REPLACE))
        if fence:
            return at, fence.end()
        at = text.find(_REPLACE, at + 1)
    return None


def apply_edits(files: Mapping[str, str], edits: Mapping[str, Sequence[Edit]]) -> dict[str, str]:
    """The new contents of the edited files. Raises EditError if an edit does not fit."""
    changed: dict[str, str] = {}
    for path, pairs in edits.items():
        text = "\n" + files.get(path, "")
        places: list[tuple[int, str, str]] = []
        for search, replace in pairs:
            place = text.find("\n" + search)
            if search == replace or place < 0:
                raise EditError(f"an edit of {path} changes nothing or is not in the file")
            places.append((place, search, replace))
        for place, search, replace in sorted(places, key=lambda entry: entry[0], reverse=True):
            text = f"{text[:place]}\n{replace}{text[place + 1 + len(search) :]}"
        changed[path] = text[1:]
    return changed


def make_patch(files: Mapping[str, str], changed: Mapping[str, str], *, remove_repo_name: bool) -> str:
    """A patch for `git apply`; empty if nothing changed."""
    patches = []
    for path, text in changed.items():
        name = path.partition("/")[2] if remove_repo_name else path
        lines = [*difflib.unified_diff(files.get(path, "").splitlines(), text.splitlines(), "old", "new", lineterm="")]
        if lines:
            patches.append("\n".join([f"diff --git a/{name} b/{name}", *lines]) + "\n")
    return "\n".join(patches)


def extract_patch(text: str, files: Mapping[str, str], *, remove_repo_name: bool, relaxed: bool) -> str | None:
    """The patch that an answer's edits amount to, or None."""
    try:
        changed = apply_edits(files, find_edits(solution_text(text, relaxed=relaxed)))
    except EditError:
        return None
    return make_patch(files, changed, remove_repo_name=remove_repo_name) or None


def find_script(text: str) -> tuple[str, int] | None:
    """The last Python block of an answer and how many there are, or a script between lines of dashes."""
    blocks: list[str] = []
    opening = f"{FENCE}python\n"
    at = text.find(opening)
    while at >= 0:
        begin = at + len(opening)
        end = text.find(f"\n{FENCE}", begin)
        if end < 0:
            break
        blocks.append(text[begin:end])
        at = text.find(opening, end + 1 + len(FENCE))
    if blocks:
        return blocks[-1], len(blocks)
    match = _SCRIPT.search(text)
    return (match[1].strip().replace(_SHEBANG, ""), 1) if match else None


def script_patch(code: str, number: int) -> str:
    """The patch that adds a script to a repository."""
    name, lines = f"reproduce_bug_{number}.py", code.split("\n")
    header = [f"diff --git a/{name} b/{name}", "new file mode 100644", "index 0000000..e69de29"]
    body = ["--- /dev/null", f"+++ b/{name}", f"@@ -0,0 +1,{len(lines)} @@", *(f"+{line}" for line in lines)]
    return "\n".join([*header, *body]) + "\n"
