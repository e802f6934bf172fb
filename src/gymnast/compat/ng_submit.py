"""`gym eval submit`: submit a Slurm job per benchmark of a job file, from here or over ssh."""

from __future__ import annotations

import re
import socket
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gymnast.cli.options import say
from gymnast.compat.job_file import read_job_file
from gymnast.compat.job_script import build_script
from gymnast.compat.ng_arguments import FieldError, NgArguments
from gymnast.errors import NotFoundError, UserError
from gymnast.executors.hosts import make_host

if TYPE_CHECKING:
    from gymnast.compat.job_file import JobFile
    from gymnast.executors.hosts import Host

_JOB_ID: Final = re.compile(r"Submitted batch job (\d+)")
_WRITE: Final = 'mkdir -p "$1/logs" "$1/artifacts" && printf %s "$2" > "$1/job.sh"'


def submit(arguments: NgArguments) -> int:
    """Submit the jobs, or with --dry-run print their scripts."""
    path = arguments.values.get("job_file")
    if not isinstance(path, str):
        raise FieldError("gym eval submit needs --config FILE")
    job = read_job_file(Path(path), arguments.words)
    for warning in job.warnings:
        say(f"warning: {warning}")
    folder = f"{job.job.output_path.rstrip('/')}/gym-job-{datetime.now().strftime('%Y%m%d_%H%M%S')}"  # noqa: DTZ005 - for people here
    scripts = {name: build_script(job, name, f"{folder}/{name}") for name in job.driver.benchmarks}
    if arguments.values.get("dry_run"):
        print(f"[dry-run] folder: {folder}")
        for name, script in scripts.items():
            print(f"\n[dry-run] script of {name}:\n{script}")
        return 0
    host = _host(job)
    _check_mounts(job, host)
    for name, script in scripts.items():
        place = f"{folder}/{name}"
        _run(host, ["sh", "-c", _WRITE, "sh", place, script], place)
        submitted = _JOB_ID.search(_run(host, ["sbatch", f"{place}/job.sh"], place))
        print(f"submitted  {name}  {f'Slurm job {submitted[1]}' if submitted else 'without a job number'}  {place}")
    return 0


def _host(job: JobFile) -> Host:
    name = job.cluster.hostname
    return make_host(None if name == socket.gethostname() else name)


def _check_mounts(job: JobFile, host: Host) -> None:
    mounts = [("driver", mount) for mount in job.driver.mounts]
    mounts += [(f"services.{name}", mount) for name, service in job.services.items() for mount in service.mounts]
    missing = [
        f"{owner}: {source}"
        for owner, source in ((owner, mount.partition(":")[0]) for owner, mount in mounts)
        if host.run(["test", "-e", source]).code
    ]
    if missing:
        raise NotFoundError(f"folders to mount do not exist: {', '.join(missing)}", where=host.name)


def _run(host: Host, command: list[str], where: str) -> str:
    result = host.run(command)
    if result.code:
        raise UserError(f"`{command[0]}` failed: {result.error_text}", where=f"{host.name}: {where}")
    return result.out
