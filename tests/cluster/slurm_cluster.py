"""A real Slurm on this machine, for tests: started by slurm_up.sh, hurt by tests, mended again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cluster.runs import wait_until
from tests.helpers.parts import skip_without

SCRIPT = Path(__file__).parent / "slurm_up.sh"
NOT_INSTALLABLE = 77


@dataclass(frozen=True)
class SlurmCluster:
    """Four nodes, n0 to n3, of one Slurm."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """What it is like; slurm_up.sh says what there is to say."""

    def up(self) -> None:
        """Start whatever of it does not run."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            [SCRIPT, "up", self.folder], capture_output=True, text=True, check=False, timeout=300, env=environment
        )
        if done.returncode == NOT_INSTALLABLE:
            skip_without("slurm-wlm", done.stderr.strip())
        assert done.returncode == 0, done.stdout + done.stderr

    def stop_controller(self) -> None:
        self._stop(self.folder / "slurmctld.pid", signal.SIGTERM)

    def kill_node(self, name: str) -> None:
        """End a node's daemon without a word; what runs there goes on, and Slurm does not know."""
        self._stop(self.folder / f"slurmd.{name}.pid", signal.SIGKILL)

    def end_jobs(self) -> None:
        """Nothing of any job is left, also of those that do not hear SIGTERM."""
        for words in (["scancel", "--signal=KILL", "--full", "--me"], ["scancel", "--me"]):
            subprocess.run(words, check=False, capture_output=True, timeout=30)
        wait_until(lambda: not self.ask("squeue", "-h", "--me").strip(), "the end of all jobs")

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands says."""
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_now(self, job: str) -> None:
        """A job that was queued again waits two minutes, unless told otherwise."""
        self.ask("scontrol", "update", f"jobid={job}", "StartTime=now")

    @contextmanager
    def starting_nothing(self) -> Iterator[None]:
        """Jobs are queued and wait, for the time of the block."""
        self.ask("scontrol", "update", "PartitionName=cpu", "State=DOWN")
        try:
            yield
        finally:
            self.ask("scontrol", "update", "PartitionName=cpu", "State=UP")

    def node_state(self, name: str) -> str:
        return self.ask("sinfo", "-h", "-N", "-p", "cpu", "-n", name, "-o", "%T").strip()

    def _stop(self, pidfile: Path, number: signal.Signals) -> None:
        pid = int(pidfile.read_text())
        os.kill(pid, number)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"the end of {pidfile.name}")
        pidfile.unlink(missing_ok=True)


@contextmanager
def running_slurm(folder: Path, **environment: str) -> Iterator[SlurmCluster]:
    """Slurm, for the time of the block; commands find it by SLURM_CONF."""
    if os.geteuid() != 0:
        skip_without("root")
    cluster = SlurmCluster(folder, environment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        try:
            cluster.up()
            try:
                yield cluster
            finally:
                cluster.end_jobs()
        finally:
            subprocess.run([SCRIPT, "wipe", folder], check=True, capture_output=True, timeout=60)
