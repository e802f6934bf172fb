"""The folder of a command's rollout, its input files, and the command's variables and arguments.

Each rollout has a folder with `work/`, `prompt.txt` and `task.json`. The task file has only what a model may see and
the fields that the settings list, because rows also contain the answers.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from gymnast.kit import PARAMS, JsonObject, RolloutAddress, message_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


EVERY_FIELD: Final = "*"
_AGENTS_DIR: Final = Path(__file__).parents[2] / "agents"
"""The shipped recipes and their programs."""


@dataclass(frozen=True, slots=True)
class RolloutFolder:
    root: Path
    working_dir: Path

    @property
    def prompt_file(self) -> Path:
        return self.root / "prompt.txt"

    @property
    def task_file(self) -> Path:
        return self.root / "task.json"

    @property
    def answer_file(self) -> Path:
        return self.root / "answer.txt"

    @property
    def home_dir(self) -> Path:
        return self.root / "home"

    @property
    def bin_dir(self) -> Path:
        return self.root / "bin"

    def write(self, prompt: str, task: JsonObject, files: Mapping[str, str], known: Mapping[str, str]) -> None:
        """Write the command's input files. `files` are further ones, with placeholders."""
        self.working_dir.mkdir(parents=True, exist_ok=True)
        self.home_dir.mkdir(exist_ok=True)
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fill(content, known), encoding="utf-8", errors="replace")
        self.prompt_file.write_text(prompt, encoding="utf-8", errors="replace")
        self.task_file.write_bytes(orjson.dumps(task))

    def write_tool_command(self, python: str) -> None:
        """Write the shell command `tool`."""
        self.bin_dir.mkdir(exist_ok=True)
        path, script = self.bin_dir / "tool", _AGENTS_DIR / "programs" / "shell_tool.py"
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} -I {shlex.quote(str(script))} "$@"\n')
        path.chmod(0o755)

    def answer(self, max_bytes: int) -> str | None:
        """The end of the answer that the command wrote; None if it wrote no plain file."""
        try:
            number = os.open(self.answer_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            state = os.fstat(number)
            if not stat.S_ISREG(state.st_mode):  # reading a pipe or a device might never end
                return None
            data = os.pread(number, max_bytes, max(0, state.st_size - max_bytes))
            return data.decode("utf-8", errors="replace")
        finally:
            os.close(number)

    def remove(self) -> None:
        """Delete the folder, but not a working directory elsewhere."""
        with contextlib.suppress(RecursionError):  # very deep folders, which `rm` can delete
            shutil.rmtree(self.root, ignore_errors=True)
        if self.root.exists():
            for command in (["chmod", "-R", "u+rwx", "--"], ["rm", "-rf", "--"]):
                subprocess.run([*command, self.root], check=False, capture_output=True)  # noqa: S603 - our own folder


def make_rollout_folder(scratch_dir: str | None, working_dir: str | None, rollout_id: str) -> RolloutFolder:
    """Create a fresh folder, in which the command works unless `working_dir` is set."""
    if scratch_dir is not None:
        _make_reachable(Path(scratch_dir))
    root = Path(tempfile.mkdtemp(prefix=f"gymnast-{rollout_id}-", dir=scratch_dir))
    if working_dir is None:
        return RolloutFolder(root, root / "work")
    return RolloutFolder(root, Path(fill(working_dir, {"rollout_id": rollout_id})).absolute())


def make_task(row: JsonObject, rollout_id: str, fields: Sequence[str]) -> JsonObject:
    """The contents of the task file."""
    shown = row if EVERY_FIELD in fields else {name: row[name] for name in fields if name in row}
    return {**shown, PARAMS: row[PARAMS], "rollout_id": rollout_id}


def make_prompt(params: Any) -> str:
    """The task as text: instructions and messages, with roles if the assistant has spoken."""
    value = params["input"]
    items = [{"role": "user", "content": value}] if isinstance(value, str) else list(value)
    messages = [item for item in items if item.get("type", "message") == "message"]
    has_roles = any(item.get("role") == "assistant" for item in messages)
    texts = [f"{item['role']}: {message_text(item)}" if has_roles else message_text(item) for item in messages]
    return "\n\n".join(text for text in (params.get("instructions") or "", *texts) if text)


def describe_tools(tools: Sequence[Any]) -> str:
    """How a shell calls the task's tools, for the end of a prompt."""
    shown = [
        f"- {tool['name']}: {tool.get('description') or ''}\n"
        f"  arguments: {orjson.dumps(tool.get('parameters') or {}).decode()}"
        for tool in tools
        if tool.get("type") == "function"
    ]
    call = 'tool NAME \'{"argument": "value"}\''
    return f"\n\nBesides the usual commands, the shell has these tools, each called as `{call}`:\n" + "\n".join(shown)


def make_placeholders(
    folder: RolloutFolder,
    address: RolloutAddress,
    *,
    prompt: str,
    model: str,
    rollout_id: str,
    python: str | None = None,
) -> dict[str, str]:
    """The values of placeholders `{name}` in commands and variables."""
    return {
        "prompt": prompt,
        "prompt_file": str(folder.prompt_file),
        "task_file": str(folder.task_file),
        "answer_file": str(folder.answer_file),
        "folder": str(folder.root),
        "home_dir": str(folder.home_dir),
        "working_dir": str(folder.working_dir),
        "rollout_id": rollout_id,
        "openai_base_url": address.openai_url,
        "anthropic_base_url": address.url,
        "tools_url": address.tools_url,
        "mcp_url": address.mcp_url,
        "api_key": address.key,
        "model": model,
        **fixed_placeholders(python),
    }


def fixed_placeholders(python: str | None) -> dict[str, str]:
    """The placeholders that are the same for every rollout."""
    return {
        "python": python or sys.executable,
        "gymnast_python": sys.executable,
        "mcp_stdio": str(_AGENTS_DIR / "programs" / "mcp_stdio.py"),
        "agents_dir": str(_AGENTS_DIR),
        "start_dir": str(Path.cwd()),
    }


def make_variables(known: Mapping[str, str], extra: Mapping[str, str], *, has_tools: bool, host: str) -> dict[str, str]:
    """The environment variables of a command in addition to inherited ones. The settings override them."""
    values = {
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
        values |= {"GYMNAST_TOOLS_URL": known["tools_url"], "GYMNAST_MCP_URL": known["mcp_url"]}
    return values | {name: fill(value, known) for name, value in extra.items()}


def make_arguments(command: str | Sequence[str], known: Mapping[str, str], *, with_prompt: bool) -> tuple[str, ...]:
    """The argument list of a command. A text is run by the shell, with the prompt as `$1`."""
    prompt = (known["prompt"],) if with_prompt else ()
    if isinstance(command, str):
        quoted = {name: shlex.quote(value) for name, value in known.items()}
        return ("/bin/sh", "-c", fill(command, quoted), "sh", *prompt)
    has_prompt = any("{prompt}" in part for part in command)
    return (*(fill(part, known) for part in command), *(() if has_prompt else prompt))


def fill(text: str, known: Mapping[str, str]) -> str:
    """Replace `{name}` for known names; other braces stay."""
    pieces = text.split("{")
    parts = [pieces[0]]
    for piece in pieces[1:]:
        name, closed, rest = piece.partition("}")
        parts.append(known[name] + rest if closed and name in known else "{" + piece)
    return "".join(parts)


def _make_reachable(folder: Path) -> None:
    """Make a folder that the sandbox's user can enter, whatever the umask is."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        path.chmod(0o755)
