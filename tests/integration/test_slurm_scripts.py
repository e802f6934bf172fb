"""Job scripts: golden text, clean for shellcheck, every strange word quoted.

`python -m tests.integration.test_slurm_scripts` writes the golden files anew.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.errors import UserError
from gymnast.executors.code_transfer import Code
from gymnast.executors.executor import WorkerRequest
from gymnast.executors.site import Resources, Site, parse_site
from gymnast.executors.slurm.assembly import SlurmOptions, finish_job, worker_job
from gymnast.executors.slurm.executor import SlurmExecutor
from gymnast.executors.slurm.job import Array, Job, Step
from gymnast.executors.slurm.script import render
from gymnast.sidecars.component import Component, Container, Mount, ReadyCheck
from gymnast.sidecars.sandbox import SANDBOX_ENVIRONMENT, SandboxOptions, make_sandbox_component
from tests.helpers.commands import BIN

GOLDEN = Path(__file__).parent / "slurm_golden"
SLURM_UP = Path(__file__).parents[1] / "cluster" / "slurm_up.sh"
FOLDER = Path("/shared/runs/a_chunks/submissions/3")
WANTED = WorkerRequest(
    run=Path("/shared/runs/a.jsonl"), count=300, max_running=64, name="gymnast-a", logs=Path("/shared/runs/a_logs")
)
POLICY = Component(
    "policy",
    ("vllm", "serve", "my-model", "--port", "{port}"),
    nodes=2,
    tasks_per_node=2,
    gpus_per_task=4,
    cpus_per_task=8,
    ready=ReadyCheck(),
)
WORKER = Component("worker", (), needs=("policy",), is_main=True)


def plain() -> Job:
    site = parse_site({"partition": "cpu", "time": "04:00:00", "python": "/shared/venv/bin/python"}, name="plain")
    return worker_job(WANTED, 3, FOLDER, SlurmOptions(site=site, workdir="/users/me/work"))


def everything() -> Job:
    """Every option of the site's file, a git snapshot, queued again when its time is up."""
    site = parse_site(
        {
            "partition": "cpu,long",
            "account": "proj-1",
            "qos": "high",
            "time": "1-12:00:00",
            "nodes": "1",
            "exclusive": "true",
            "gres": "gpu:h100:8",
            "cpus_per_task": "16",
            "memory": "64G",
            "comment": "it's mine; $(touch /tmp/oops)",
            "mail_user": "me@example.org",
            "mail_type": "END,FAIL",
            "extra_sbatch": "--constraint='a100&nvme' --nice",
            "environment": {"HF_HOME": "/shared/hf home", "QUOTES": '\'"$HOME"`id`'},
            "setup": ["module load cuda/12", "source /shared/env.sh"],
            "srun_options": "--mpi=none",
            "drain_s": "300",
            "requeue": "5",
            "python": "/shared/venv/bin/python",
        },
        name="everything",
    )
    folder = "/shared/code/1"
    code = Code(choice="snapshot", digest="git:1", folder=folder, workdir=f"{folder}/sub", packages=(folder,))
    return worker_job(WANTED, 3, FOLDER, SlurmOptions(site=site, code=code, after=("afterok:17", "afterany:18")))


def _contained(runtime: str) -> Site:
    return parse_site(
        {
            "partition": "gpu",
            "runtime": runtime,
            "container": "gymnast",
            "containers": {
                "gymnast": {"image": "/images/gymnast.sqsh", "workdir": "/work"},
                "vllm": {"image": "registry.example.org#ai/vllm:1", "mounts": ["/models:/models:ro"]},
            },
            "mounts": ["/shared", "/scratch:/tmp"],
        },
        name=runtime,
    )


def servers(runtime: str) -> Job:
    """Policy servers on two nodes beside the worker, each in a container of its own."""
    site = _contained(runtime)
    policy = replace(POLICY, container=site.get_container("vllm"))
    return worker_job(WANTED, 3, FOLDER, SlurmOptions(site=site, components=(policy,), worker=WORKER))


def sandbox() -> Job:
    """Policy, sandbox service and worker in one job."""
    site = _contained("pyxis")
    walls = make_sandbox_component(SandboxOptions(), Container("sandbox", "/images/sandbox.sqsh"))
    worker = replace(WORKER, environment=SANDBOX_ENVIRONMENT, needs=("policy", "sandbox"))
    policy = replace(POLICY, nodes=1, container=site.get_container("vllm"))
    return worker_job(WANTED, 3, FOLDER, SlurmOptions(site=site, components=(policy, walls), worker=worker))


def heterogeneous() -> Job:
    """Servers and worker on different kinds of nodes; not an array, as Slurm has none of these."""
    policy, worker = replace(POLICY, het_group=1), replace(WORKER, het_group=0)
    site = parse_site({"partition": "cpu", "python": "/shared/venv/bin/python"}, name="het")
    parts = (Resources(partition="cpu", time="01:00:00"), Resources(partition="gpu", time="01:00:00", nodes=3))
    options = SlurmOptions(site=site, components=(policy,), worker=worker, parts=parts)
    return worker_job(WANTED, 3, FOLDER, options, [str(number) for number in range(100, 165)])


def finish() -> Job:
    site = parse_site(
        {
            "partition": "gpu",
            "account": "p",
            "gpus_per_node": "8",
            "exclusive": "true",
            "python": "/shared/venv/bin/python",
            "merge": {"partition": "cpu", "time": "00:30:00", "memory": "8G"},
        },
        name="finish",
    )
    words = (("merge", "/shared/runs/a.jsonl"), ("profile", "/shared/runs/a.jsonl"))
    return finish_job(WANTED, 3, FOLDER, SlurmOptions(site=site, finish=words, finish_after=("20",)), ["21"])


JOBS = {
    "plain": plain(),
    "everything": everything(),
    "servers_pyxis": servers("pyxis"),
    "servers_apptainer": servers("apptainer"),
    "sandbox": sandbox(),
    "heterogeneous": heterogeneous(),
    "finish": finish(),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_script_is_as_it_was(name: str) -> None:
    assert render(JOBS[name]) == (GOLDEN / f"{name}.sh").read_text()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.sh")} == set(JOBS)


SHELLCHECK = shutil.which("shellcheck", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("name", [*JOBS, "slurm_up"])
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    text = render(JOBS[name]) if name in JOBS else SLURM_UP.read_text()
    path.write_text(text.replace("source /shared/env.sh\n", ""))  # what a site's own lines source is not ours to check
    assert SHELLCHECK is not None
    done = subprocess.run([SHELLCHECK, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


STRANGE = st.text(st.characters(exclude_characters="\0\n\r", codec="utf-8"), min_size=1, max_size=20)


@given(STRANGE, STRANGE)
def test_no_word_of_others_becomes_shell(word: str, value: str) -> None:
    """Bash itself says what the words are: exactly those that were given."""
    component = Component("main", (), environment={"NAME": value}, is_main=True)
    text = render(Job("j", "", "/f", "/l", (Step(component, ("printf", "%s", word)),), is_sequential=True))
    command = text[text.index("srun") :]
    shown = subprocess.run(
        ["bash", "-c", 'srun() { printf "%s\\0" "$@"; }; ' + command], capture_output=True, check=True
    ).stdout.decode()
    assert shown.split("\0")[-6:-1] == ["env", f"NAME={value}", "printf", "%s", word]


def test_an_option_cannot_bring_a_line_of_its_own() -> None:
    step = Step(Component("main", ()), ("true",))
    with pytest.raises(UserError, match="one line"):
        render(Job("a\n#SBATCH --uid=0", "", "/f", "/l", (step,)))


def test_without_steps_there_is_no_job() -> None:
    with pytest.raises(UserError, match="a job needs at least one step"):
        render(Job("a", "", "/f", "/l", ()))


@given(st.integers(1, 500), st.one_of(st.none(), st.integers(1, 500)))
def test_an_array_has_as_many_elements_as_workers(count: int, max_running: int | None) -> None:
    job = Job("a", "", "/f", "/l", (Step(Component("main", ()), ("true",)),), array=Array(count, max_running))
    match = re.search(r"--array=0-(\d+)(?:%(\d+))?$", render(job), re.MULTILINE)
    assert match is not None
    assert int(match[1]) == count - 1
    assert match[2] == (str(max_running) if max_running is not None else None)


def test_folders_of_the_run_are_mounted_unless_they_are_already() -> None:
    container = Container("c", "/i.sqsh", (Mount("/shared/runs", "/shared/runs"),))
    site = parse_site({"runtime": "pyxis"}, name="m")
    wanted = WorkerRequest(run=Path("/other/a.jsonl"), count=1, logs=Path("/other/logs"))
    worker = Component("worker", (), container=container, is_main=True)
    text = render(worker_job(wanted, 1, FOLDER, SlurmOptions(site=site, worker=worker)))
    assert "--container-mounts=/shared/runs:/shared/runs,/other:/other " in text


def test_another_folder_of_the_same_name_inside_is_not_the_run() -> None:
    """What a mount shows as /shared is not what the host has there."""
    inside = Container("c", "/i.sqsh", (Mount("/lustre", "/shared"), Mount("/lustre/models", "/shared/models")))
    assert inside.host_path("/shared/models/m") == "/lustre/models/m"
    assert inside.host_path("/sharedness") is None
    assert inside.with_folders(["/shared/runs", "/shared/runs/a"]).mounts[2:] == (
        Mount("/shared/runs", "/shared/runs"),
    )


def test_runs_of_the_same_name_have_job_folders_of_their_own() -> None:
    """Specs of components are read when a job starts: those of another run must not lie there by then."""
    executor = SlurmExecutor(SlurmOptions(site=parse_site({"job_dir": "/shared/jobs"}, name="site")))
    wanted = [WorkerRequest(run=Path(run), count=1) for run in ("/a/x.jsonl", "/b/x.jsonl")]
    first, second = (executor.scripts(one, 1)[0].path for one in wanted)
    assert first != second
    assert first.is_relative_to("/shared/jobs")


def test_the_log_of_a_run_with_a_percent_sign_is_not_slurms_to_read() -> None:
    wanted = WorkerRequest(run=Path("/r/50%a.jsonl"), count=1, logs=Path("/r/50%a_logs"), name="x")
    text = render(worker_job(wanted, 1, FOLDER, SlurmOptions()))
    assert "--output=/r/50%%a_logs/x-1-%a.log" in [
        shlex.split(line)[-1] for line in text.splitlines() if "SBATCH" in line
    ]


if __name__ == "__main__":
    for each, job in JOBS.items():
        (GOLDEN / f"{each}.sh").write_text(render(job))
