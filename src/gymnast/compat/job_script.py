"""The batch script of a benchmark in a job file: starts the services with Pyxis, waits for them, runs the driver."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final

from gymnast.compat.job_file import VllmService
from gymnast.config.write_overrides import write_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gymnast.compat.job_file import BenchmarkRun, HealthCheck, JobFile, RayService, SlurmCluster

_OUTPUT: Final = "+output_jsonl_fpath=artifacts/rollouts.jsonl"
_POLL_S: Final = 5
_WAIT: Final = """\
# wait for {name}
{var}_READY=0
for _i in $(seq 1 {tries}); do
    if curl -sf {url} > /dev/null 2>&1; then
        {var}_READY=1
        break
    fi
    if ! kill -0 "${var}_PID" 2> /dev/null; then
        echo {ended} >&2
        exit 1
    fi
    sleep {poll}
done
if [ "${var}_READY" -eq 0 ]; then
    echo {late} >&2
    exit 1
fi
"""


def build_script(job: JobFile, name: str, folder: str) -> str:
    """The script of a benchmark; `folder` is where it runs and writes."""
    benchmark = job.driver.benchmarks[name]
    parts = ["#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in _directives(job.cluster, name, folder))]
    parts += [_start(each, service) for each, service in job.services.items()]
    parts += [
        _wait(each, service.health_check) for each, service in job.services.items() if service.health_check is not None
    ]
    return "\n".join([*parts, _drive(job, benchmark)])


def _directives(cluster: SlurmCluster, name: str, folder: str) -> Iterator[str]:
    yield f"--job-name=gym-{name}"
    yield f"--account={cluster.account}"
    if cluster.walltime:
        yield f"--time={cluster.walltime}"
    yield f"--chdir={folder}"
    yield from _extra(cluster.extra_args)
    for pool in cluster.node_pools.values():
        yield f"--partition={pool.partition}"
        yield f"--nodes={pool.nodes}"
        yield f"--ntasks-per-node={pool.ntasks_per_node}"
        if pool.gpus_per_node is not None:
            yield f"--gpus-per-node={pool.gpus_per_node}"
        yield from _extra(pool.extra_args)


def _extra(arguments: Mapping[str, str]) -> Iterator[str]:
    return (f"--{key}={value}" for key, value in arguments.items())


def _srun(container: str, log: str, env: Mapping[str, str], mounts: Sequence[str]) -> str:
    """The beginning of a step in a container that shares the job's nodes with the other steps."""
    variables = "".join(f" {key}={shlex.quote(value)}" for key, value in env.items())
    mounted = f" --container-mounts={shlex.quote(','.join(mounts))}" if mounts else ""
    return (
        f"{'env' + variables + ' ' if env else ''}srun --overlap --no-container-mount-home{mounted}"
        f" --container-image={shlex.quote(container)} --output={shlex.quote(f'logs/{log}.log')}"
    )


def _start(name: str, service: VllmService | RayService) -> str:
    command = _vllm_words(service) if isinstance(service, VllmService) else ["ray", "start", "--head"]
    step = _srun(service.container, name, service.env, service.mounts)
    return f"# service {name}\n{step} {shlex.join(command)} &\n{_variable(name)}_PID=$!\n"


def _vllm_words(service: VllmService) -> list[str]:
    words = ["vllm", "serve", service.model, "--port", str(service.port)]
    words += ["--tensor-parallel-size", str(service.tensor_parallel_size)]
    if service.pipeline_parallel_size > 1:
        words += ["--pipeline-parallel-size", str(service.pipeline_parallel_size)]
    if service.number_of_instances > 1:
        words += ["--data-parallel-size", str(service.number_of_instances)]
    return [*words, "--trust-remote-code"] if service.trust_remote_code else words


def _wait(name: str, check: HealthCheck) -> str:
    return _WAIT.format(
        name=name,
        var=_variable(name),
        url=shlex.quote(f"http://localhost:{check.port}{check.path}"),
        tries=max(1, check.timeout_seconds // _POLL_S),
        ended=shlex.quote(f"ERROR: {name} ended while it was starting; see logs/{name}.log"),
        late=shlex.quote(f"ERROR: {name} was not ready within {check.timeout_seconds} s; see logs/{name}.log"),
        poll=_POLL_S,
    )


def _variable(name: str) -> str:
    """What variables of a service begin with: another name for each service, even for `a-b` and `a_b`."""
    return "SERVICE_" + re.sub(r"[^A-Za-z0-9]", lambda match: f"_{ord(match[0]):x}_", name)


def _drive(job: JobFile, benchmark: BenchmarkRun) -> str:
    driver = job.driver
    words = ["gym", "eval", "run", _OUTPUT]
    words += ["--model-type", "openai_model"] if driver.policy_model is not None else []
    lines = "\n".join(f"    {shlex.quote(word)}" for word in [*words, *flat_words(benchmark.run)])
    step = _srun(driver.container, "driver", driver.env, driver.mounts)
    return f"GYM_CMD=(\n{lines}\n)\n{step} {_entry(job, benchmark)}\n"


def _entry(job: JobFile, benchmark: BenchmarkRun) -> str:
    """What the driver's step runs: the command, in the same container after what must come first."""
    install, steps = job.driver.gym_install, list[str]()
    if install is not None:
        folder = install.repo.rstrip("/").rpartition("/")[2].removesuffix(".git")
        steps += [f"git clone {shlex.quote(install.repo)}", f"cd {shlex.quote(folder)}"]
        steps += [f"git checkout {shlex.quote(install.ref)}", "python -m pip install --editable ."]
    if benchmark.prepare:
        steps.append(shlex.join(["gym", "eval", "prepare", *flat_words(benchmark.prepare)]))
    if not steps:
        return '"${GYM_CMD[@]}"'
    program = "\n".join(["set -e", *steps, 'exec "$@"'])
    return f'bash -c {shlex.quote(program)} -- "${{GYM_CMD[@]}}"'


def flat_words(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Nested settings as `+key.path=value` words, which give the same values when they are parsed."""
    words: list[str] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            words += flat_words(value, f"{prefix}{key}.")
        else:
            words.append(f"+{prefix}{key}={write_value(value)}")
    return words
