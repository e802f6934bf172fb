"""Writes the files of runs that never happened: records, plan and manifest with exactly the oddity in question."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOOK = {"type": "function", "name": "look", "description": "", "strict": False, "parameters": {"type": "object"}}
TASKS = 8
REPEATS = 4

Reply = dict[str, Any]
"""Fields of a response: output, incomplete_details, usage."""


def write_compact(path: Path, rows: Sequence[Any]) -> None:
    """Rows as JSONL, written as records are."""
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content}


def call(name: str, arguments: str, call_id: str = "c1") -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": arguments, "call_id": call_id}


def tool_output(text: str, call_id: str = "c1") -> dict[str, Any]:
    return {"type": "function_call_output", "output": text, "call_id": call_id}


def said(*texts: str) -> Callable[[int, int], Reply]:
    """Replies that say these texts in turn."""
    return lambda task, rollout: {"output": [message(texts[(task * 7 + rollout) % len(texts)])]}


def cut(text: str, reason: str = "max_output_tokens") -> Callable[[int, int], Reply]:
    return lambda task, rollout: {
        "output": [message(f"{text} {task} {rollout}")],
        "incomplete_details": {"reason": reason},
    }


def did(*items: dict[str, Any]) -> Callable[[int, int], Reply]:
    """Replies with these items."""
    return lambda _task, _rollout: {"output": list(items)}


def mcqa_row(task: int) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"Question {task}: which one?"}]},
        "options": [{letter: f"option {letter}{task}"} for letter in "ABCD"],
        "expected_answer": "ABCD"[task % 4],
    }


@dataclass
class Run:
    """A run to write."""

    reply: Callable[[int, int], Reply]
    reward: Callable[[int, int], float] = lambda _task, _rollout: 0.0
    row: Callable[[int], dict[str, Any]] = mcqa_row
    environment: str = "mcqa"
    code: str = ""
    """The environment's code, if it is not a builtin one."""
    tasks: int = TASKS
    repeats: int = REPEATS
    record: dict[str, Any] = field(default_factory=dict)
    """More fields for each record."""
    recorded_row: Callable[[int], dict[str, Any]] | None = None
    """The row in the record, if it differs from the planned one."""
    agent: str = "agent"

    def write(self, folder: Path, name: str = "x") -> tuple[str, ...]:
        planned, scored = [], []
        for task in range(self.tasks):
            for rollout in range(self.repeats):
                key = {"_ng_task_index": task, "_ng_rollout_index": rollout}
                agent = {"agent_ref": {"type": "responses_api_agents", "name": self.agent}}
                planned.append({**self.row(task), **key, **agent})
                row = (self.recorded_row or self.row)(task)
                usage = {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29}
                response = {"incomplete_details": None, "usage": usage, **self.reply(task, rollout)}
                reward = self.reward(task, rollout)
                scored.append({**row, "response": response, "reward": reward, **self.record, **key, **agent})
        write_compact(folder / f"{name}_materialized_inputs.jsonl", planned)
        write_compact(folder / f"{name}.jsonl", scored)
        write_compact(folder / f"{name}_failures.jsonl", [])
        (folder / f"{name}_run.json").write_text(json.dumps(self.manifest(len(planned))))
        if self.code:
            install(folder, self.environment, self.code)
        return (str(folder / f"{name}.jsonl"),)

    def manifest(self, rows: int) -> dict[str, Any]:
        references = {"resources_server": {"type": "resources_servers", "name": self.environment}}
        return {
            "run_id": "r",
            "state": "complete",
            "output": "x.jsonl",
            "created_at": 1.0,
            "updated_at": 2.0,
            "versions": {},
            "source": {},
            "plan": {"rows": rows},
            "settings": {
                self.environment: {"implementation": f"resources_servers/{self.environment}", "settings": {}},
                self.agent: {"implementation": "responses_api_agents/simple_agent", "settings": references},
            },
            "code": {},
            "counts": {"requested": rows, "scored": rows},
        }


CONFIG = """
{name}:
  resources_servers:
    {name}: {{entrypoint: app.py, domain: other}}
{name}_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: {name}}}
      model_server: {{type: responses_api_models, name: policy_model}}
"""


def install(folder: Path, name: str, code: str) -> None:
    home = folder / "resources_servers" / name
    (home / "configs").mkdir(parents=True, exist_ok=True)
    (home / "app.py").write_text(code)
    (home / "configs" / f"{name}.yaml").write_text(CONFIG.format(name=name))


def verifier(body: str, fields: str = "expected_answer: str = ''") -> str:
    """The code of an environment whose `verify` has this body."""
    return (
        "import re\n\nfrom gymnast.kit import Attempt, Environment, Task\n\n\n"
        f"class OwnTask(Task):\n    {fields}\n\n\n"
        "class Own(Environment[OwnTask, None]):\n"
        f"    async def verify(self, attempt: Attempt) -> float:\n        {body}\n"
    )


# --- cases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A fault, and what the first answer must be."""

    name: str
    make: Callable[[Path], tuple[str, ...]]
    layers: tuple[str, ...]
    says: str
    """A regular expression that symptom, cause or next step must match."""
    avoids: str = ""
    """One that none of them may match."""


@dataclass(frozen=True)
class LogCase:
    """A log of another program."""

    name: str
    layers: tuple[str, ...]
    cause: str
    """Part of the line with the first cause."""
    next: str
    """A regular expression that symptom or next step must match."""
    file: str
    text: str

    def make(self, folder: Path) -> tuple[str, ...]:
        if self.file != FOLDER:
            (folder / self.file).write_text(self.text)
            return (str(folder / self.file),)
        for part in self.text.split("%% ")[1:]:
            name, _, text = part.partition("\n")
            (folder / name).write_text(text)
        return (str(folder),)


FOLDER = "DIR"
"""Instead of a file's name: several logs, each after a line `%% name`."""


def read_logs_of(path: Path) -> Iterator[LogCase]:
    """The cases of a corpus: `@@ name | layers | cause | next | file`, then the log. `$150 line` repeats a line."""
    for part in path.read_text().split("@@ ")[1:]:
        head, _, body = part.partition("\n")
        name, layers, cause, following = head.split(" | ")[:4]
        text = "".join(_lines(body.splitlines()))
        yield LogCase(name, tuple(layers.split()), cause, following, head.split(" | ")[4].strip(), text)


def _lines(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        count, _, rest = line.partition(" ")
        if count.startswith("$") and count[1:].isdigit():
            yield from (
                rest.replace("{n:02d}", f"{n % 60:02d}").replace("{n}", str(n)) + "\n" for n in range(int(count[1:]))
            )
        else:
            yield line + "\n"
