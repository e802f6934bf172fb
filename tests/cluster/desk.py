"""A folder in which somebody works with a cluster, and the commands that are typed there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.runs import CONFIG, HOLD, STEADY
from tests.cluster.slurm_cluster import SlurmCluster
from tests.helpers.commands import Outcome, run_command
from tests.helpers.jsonl import write_jsonl

_AGENT: Final = "++steady_agent.responses_api_agents.steady_agent"


class Desk:
    """A folder in which somebody works."""

    def __init__(self, folder: Path, tasks: int = 30) -> None:
        self.folder = folder
        self.rows = [{"responses_create_params": {"input": f"question {task}"}} for task in range(tasks)]
        write_jsonl(folder / "tasks.jsonl", self.rows)

    @property
    def run(self) -> Path:
        return self.folder / "x.jsonl"

    def gymnast(self, *words: str) -> Outcome:
        return run_command(self.folder, "gymnast", *words)

    def submit(self, *words: str, mean_s: float = 0.05, held_from: int | None = None) -> Outcome:
        """Submit; with `held_from` no rollout of this task and those after it ends before `release`."""
        options = [f"{_AGENT}.mean_s={mean_s}"]
        if held_from is not None:
            options += [f"{_AGENT}.held_by={self.folder / HOLD}", f"{_AGENT}.held_from={held_from}"]
        common = ["-c", CONFIG, "--search-dir", str(STEADY), "-i", "tasks.jsonl", "-o", "x.jsonl", "-n", "2"]
        return self.gymnast("submit", *options, *common, "--executor", "slurm", *words)

    def hold(self) -> None:
        (self.folder / HOLD).touch()

    def release(self) -> None:
        (self.folder / HOLD).unlink()

    def queue(self, slurm: SlurmCluster, name: str, *, code: int = 0) -> Path:
        """Start a job that ends, with this exit code, once the file that is returned exists."""
        gate = self.folder / f"{name}.ends"
        wait = f"until [ -e '{gate}' ]; do sleep 0.1; done; exit {code}"
        slurm.ask("sbatch", "--job-name", name, "-o", "/dev/null", "--wrap", wait)
        return gate

    def cluster(self, **site: Any) -> str:
        """A cluster's file for --cluster."""
        (self.folder / "cluster_configs").mkdir(exist_ok=True)
        (self.folder / "cluster_configs" / "mine.yaml").write_text(yaml.safe_dump({"partition": "cpu", **site}))
        return "mine"

    def scored(self) -> int:
        files = self.folder.glob("x_chunks/c/*/[0-9]*.jsonl")
        return sum(path.read_bytes().count(b"\n") for path in files if "failures" not in path.name)

    def status(self) -> dict[str, Any]:
        done = self.gymnast("status", "x.jsonl", "--json")
        assert done.code in {0, 1}, done.err
        data: dict[str, Any] = done.json()
        return data
