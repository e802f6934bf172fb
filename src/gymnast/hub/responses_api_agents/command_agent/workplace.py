"""Where a command works during one rollout: its folder, the files it is given, its variables, its arguments.

A rollout has a folder of its own with `work/`, `prompt.txt` and `task.json`; the task file holds what a model may see
and the row's fields that the settings name, because rows also hold the answers.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.types.responses import message_text
from gymnast.types.task import PARAMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gymnast.kit.gateway import Address
    from gymnast.types.json import JsonObject

EVERY_FIELD: Final = "*"


@dataclass(frozen=True, slots=True)
class Workplace:
    """The folder of one rollout."""

    folder: Path
    working_dir: Path

    @property
    def prompt_file(self) -> Path:
        return self.folder / "prompt.txt"

    @property
    def task_file(self) -> Path:
        return self.folder / "task.json"

    @property
    def answer_file(self) -> Path:
        return self.folder / "answer.txt"

    def write(self, prompt: str, task: JsonObject) -> None:
        """Put down what the command is given."""
        self.working_dir.mkdir(parents=True, exist_ok=True)
        self.prompt_file.write_text(prompt, encoding="utf-8", errors="replace")
        self.task_file.write_bytes(orjson.dumps(task))

    def answer(self) -> str:
        """What the command wrote as its answer; nothing if it wrote none."""
        try:
            return self.answer_file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def remove(self) -> None:
        """Delete the folder. A working folder somewhere else is left alone."""
        shutil.rmtree(self.folder, ignore_errors=True)


def make_workplace(scratch_dir: str | None, working_dir: str | None, rollout_id: str) -> Workplace:
    """A fresh folder; the command works in it unless `working_dir` says where else."""
    if scratch_dir is not None:
        _make_reachable(Path(scratch_dir))
    folder = Path(tempfile.mkdtemp(prefix=f"gymnast-{rollout_id}-", dir=scratch_dir))
    if working_dir is None:
        return Workplace(folder, folder / "work")
    return Workplace(folder, Path(filled(working_dir, {"rollout_id": rollout_id})).absolute())


def task_of(row: JsonObject, rollout_id: str, fields: Sequence[str]) -> JsonObject:
    """What the command is told about its task."""
    shown = row if EVERY_FIELD in fields else {name: row[name] for name in fields if name in row}
    return {**shown, PARAMS: row[PARAMS], "rollout_id": rollout_id}


def prompt_of(params: Any) -> str:
    """The task as text: instructions and messages, one after the other; who speaks is said where there are several."""
    given = params["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    messages = [item for item in items if item.get("type", "message") == "message"]
    told = any(item.get("role") == "assistant" for item in messages)
    texts = [f"{item['role']}: {message_text(item)}" if told else message_text(item) for item in messages]
    return "\n\n".join(text for text in (params.get("instructions") or "", *texts) if text)


def placeholders(place: Workplace, address: Address, *, prompt: str, model: str, rollout_id: str) -> dict[str, str]:
    """What `{name}` stands for in commands and variables."""
    return {
        "prompt": prompt,
        "prompt_file": str(place.prompt_file),
        "task_file": str(place.task_file),
        "answer_file": str(place.answer_file),
        "working_dir": str(place.working_dir),
        "rollout_id": rollout_id,
        "openai_base_url": address.openai_url,
        "anthropic_base_url": address.url,
        "tools_url": address.tools_url,
        "mcp_url": address.mcp_url,
        "api_key": address.key,
        "model": model,
        "python": sys.executable,
        "start_dir": str(Path.cwd()),
    }


def variables(known: Mapping[str, str], extra: Mapping[str, str], *, has_tools: bool, host: str) -> dict[str, str]:
    """The variables a command is started with, besides those it inherits. What the settings say wins."""
    found = {
        "OPENAI_BASE_URL": known["openai_base_url"],
        "OPENAI_API_BASE": known["openai_base_url"],
        "OPENAI_API_KEY": known["api_key"],
        "OPENAI_MODEL": known["model"],
        "ANTHROPIC_BASE_URL": known["anthropic_base_url"],
        "ANTHROPIC_API_KEY": known["api_key"],
        "ANTHROPIC_MODEL": known["model"],
        "GYMNAST_API_KEY": known["api_key"],
        "GYMNAST_ROLLOUT_ID": known["rollout_id"],
        "GYMNAST_TASK_FILE": known["task_file"],
        "GYMNAST_PROMPT_FILE": known["prompt_file"],
        "GYMNAST_ANSWER_FILE": known["answer_file"],
        "NO_PROXY": f"{host},localhost,127.0.0.1",
        "no_proxy": f"{host},localhost,127.0.0.1",
    }
    if has_tools:
        found |= {"GYMNAST_TOOLS_URL": known["tools_url"], "GYMNAST_MCP_URL": known["mcp_url"]}
    return found | {name: filled(value, known) for name, value in extra.items()}


def arguments(command: str | Sequence[str], known: Mapping[str, str], *, with_prompt: bool) -> tuple[str, ...]:
    """The command as it is started. A text is one for the shell, where the prompt is `$1`."""
    more = (known["prompt"],) if with_prompt else ()
    if isinstance(command, str):
        quoted = {name: shlex.quote(value) for name, value in known.items()}
        return ("/bin/sh", "-c", filled(command, quoted), "sh", *more)
    named = any("{prompt}" in part for part in command)
    return (*(filled(part, known) for part in command), *(() if named else more))


def filled(text: str, known: Mapping[str, str]) -> str:
    """The text with `{name}` replaced for the names we know; other braces are the author's."""
    pieces = text.split("{")
    found = [pieces[0]]
    for piece in pieces[1:]:
        name, closed, rest = piece.partition("}")
        found.append(known[name] + rest if closed and name in known else "{" + piece)
    return "".join(found)


def _make_reachable(folder: Path) -> None:
    """Make a folder that a sandbox's own user can enter, whatever the umask says."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        path.chmod(0o755)
