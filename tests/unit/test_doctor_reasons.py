"""What doctor concludes from the form of a log: who speaks, what is refused, what lasts, and what is only data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.log_reports import report

if TYPE_CHECKING:
    from pathlib import Path


HOUR = "Feb 02 10:{:02}:{:02} node7 agentd[41]: "


FAULTS = {
    "the reason is at the end of a message that wraps it": (
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
        ("scheduler_down", "infra"),
    ),
    "what is refused is a port and no file": (
        "Error: bind EACCES: permission denied 0.0.0.0:443\n",
        ("port_denied", "config"),
    ),
    "what was asked for exists, and is not free": (
        "Warning  FailedScheduling  9s  default-scheduler  0/6 nodes are available: 6 Insufficient nvidia.com/gpu.\n",
        ("scheduler_refused", "infra"),
    ),
    "a check in GPU code is no broken GPU": (
        (
            "INFO vLLM API server version 9.9\n"
            "/src/ATen/native/cuda/Gather.cu:77: gather_rows: block: [1,0,0] Assertion `row < rows` failed.\n"
            "ERROR 02-02 10:00:00 [core.py:1] RuntimeError: CUDA error: device-side assert triggered\n"
        ),
        ("gpu_assert", "model_serving"),
    ),
    "a GPU that others hold is no broken GPU": (
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n",
        ("gpu_busy", "infra"),
    ),
    "a step that ends because a task failed was not cancelled by a user": (
        "slurmstepd: error: *** STEP 81.0 ON n3 CANCELLED AT 2031-02-02T10:00:00 DUE TO TASK FAILURE ***\n",
        ("step_failed", "infra"),
    ),
    "offline mode is a setting": (
        "hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/models/x: offline mode is enabled.\n",
        ("offline_mode", "config"),
    ),
    "a user's folder that is called like a server is no server": (
        (
            'Traceback (most recent call last):\n  File "/srv/me/vllm_study/store.py", line 3, in save\n'
            "    cursor.execute(insert)\nsqlite3.OperationalError: table t has 4 columns but 3 values were supplied\n"
        ),
        ("data_unreadable", "data_schema"),
    ),
    "a weight without a place in the model": (
        (
            'ERROR 02-02 10:00:00 engine.py:9]   File "/opt/vllm/models/m.py", line 4, in load_weights\n'
            "ERROR 02-02 10:00:00 engine.py:9]     slot = slots[name]\n"
            "ERROR 02-02 10:00:00 engine.py:9] KeyError: 'layers.3.mlp.up_proj.scale'\n"
        ),
        ("weights_mismatch", "config"),
    ),
    "an end that was not expected counts at any level": (
        (
            "2031-02-02 10:00:00,1 WARNING pool.py:3 -- Supervisor is terminated: id=7. Termination is unexpected. "
            "Possible reasons include: (1) the OOM killer, (2) a crash.\n"
        ),
        ("terminated", "infra"),
    ),
    "what a user waited for in vain": (
        (
            "WARNING 02-02 10:00:00 [plan.py:1] The number of required GPUs exceeds those that there are.\n"
            "INFO 02-02 10:00:09 [plan.py:2] Waiting for placement.\n"
            'Traceback (most recent call last):\n  File "/usr/lib/asyncio/runners.py", line 8, in run\n'
            "KeyboardInterrupt\n"
        ),
        ("scheduler_refused", "config"),
    ),
    "a server that fails on one request of eight": (
        "Failed to export span batch code: 403, reason: Forbidden\n"
        + (
            'INFO:     10.0.0.1:1 - "POST /answer HTTP/1.1" 200 OK\n' * 7
            + 'INFO:     10.0.0.1:1 - "POST /answer HTTP/1.1" 500 Internal Server Error\n'
        )
        * 200,
        ("requests_rejected", "infra"),
    ),
    "the exception that ended a program, not what its shell had said": (
        (
            'Lmod has detected the following error: The following module(s) are unknown: "tool"\n'
            + "loading\n" * 9
            + 'Traceback (most recent call last):\n  File "/opt/site-packages/requests/m.py", line 8, in get\n'
            "requests.exceptions.ChunkedEncodingError: ('Connection broken: IncompleteRead(5 bytes read)')\n"
        ),
        ("peer_lost", "infra"),
    ),
    "folders of environments say nothing about whose fault it is": (
        (
            'Traceback (most recent call last):\n  File "D:\\envs\\x\\Lib\\site-packages\\httpx\\d.py", line 8, in c\n'
            "httpx.ConnectTimeout: [WinError 10060]\n"
        ),
        ("unreachable", "infra"),
    ),
    "shared memory that cannot be opened": (
        "ERROR 02-02 10:00:00 [w.py:7] RuntimeError: shm open failed: No such file or directory\n",
        ("shared_memory", "infra"),
    ),
    "of events, the one that comes again": (
        (
            "  Warning  BackOff      8m (x40 over 20m)  kubelet  Back-off restarting failed container\n"
            "  Warning  FailedMount  6m                 kubelet  MountVolume.SetUp failed: timed out\n"
            "  Warning  BackOff      1m (x90 over 20m)  kubelet  Back-off restarting failed container\n"
        ),
        ("container_crashes", "infra"),
    ),
}


@pytest.mark.parametrize("symptom", FAULTS)
def test_the_reason_decides_the_class(symptom: str, tmp_path: Path) -> None:
    log, expected = FAULTS[symptom]
    first = report(tmp_path, log).findings[0]
    assert (first.id, first.layer.value) == expected


HEALTHY = {
    "an evaluation that prints its results": "RESULTS\n" + "".join(f"task {n}: 0.{n}1 (OK)\n" for n in range(9)),
    "warnings of a compiler": "".join(
        f"main.f90:{n}:7:\n\nWarning: Unused variable 'x{n}' declared at (1) [-Wunused-variable]\n" for n in range(30)
    ),
    "an error message of a library, and the program goes on": (
        "2031-02-02 10:00:00.1: W lib/loader.cc:64] Could not load dynamic library 'libx.so.7'; cannot open shared "
        "object file: No such file or directory\n"
        "2031-02-02 10:00:00.2: E lib/blas.cc:9] Unable to register factory: one is there already\n"
        "2031-02-02 10:00:00.3: I lib/guard.cc:3] This binary uses the instructions of this CPU.\n"
    ),
    "a server that is asked to exit": (
        "10:00:00 Gracefully exiting... 0 requests left.\n10:00:01 ERROR: Traceback (most recent call last):\n"
        '  File "/usr/lib/asyncio/runners.py", line 8, in run\n    return loop.run()\n'
        "SystemExit: 0\nasyncio.exceptions.CancelledError\n"
    ),
    "a pod that came up on the second try": (
        "4m9s   Warning   FailedCreatePodSandBox   pod/a   Failed to create pod sandbox: no runtime for nvidia\n"
        "3m9s   Normal    Pulled                   pod/a   Container image is present\n"
        "3m1s   Normal    Started                  pod/a   Started container a\n"
    ),
    "strangers who scan a server that works": (
        'INFO:     10.0.0.1:1 - "POST /answer HTTP/1.1" 200 OK\n' * 30
        + 'INFO:     8.8.4.4:1 - "POST / HTTP/1.1" 404 Not Found\n' * 30
    ),
    "a worker that its server asked to stop": (
        "[2031-02-02 10:00:00 +0000] [4] [INFO] Handling signal: term\n"
        "[2031-02-02 10:00:00 +0000] [4] [ERROR] Worker (pid:5) was sent SIGTERM!\n"
        "[2031-02-02 10:00:01 +0000] [4] [INFO] Shutting down: Master\n"
    ),
    "a text about failures": (
        "Records from the archive\n"
        * 6
        + "Anything beyond this point has only an attempted search which failed for some reason in the original study\n"
        "There may not even be a result for it\n"
    ),
    "statistics of a compiler": "pages\n" * 9 + " 12 strings out of 400\n 7 hyphenation exceptions out of 900\n",
    "source code that a program prints": (
        "epoch 1 done\n    try:\n        load()\n    except AttributeError:\n        pass\n"
        "Warning: You are sending unauthenticated requests. Please set a TOKEN to enable higher rate limits.\n"
        "epoch 2 done, loss=0.1, accuracy=0.9\n"
    ),
    "a kernel message that says that it is ignored": (
        "Feb 02 10:00:00 n1 kernel: nfsd: attempt to start tracking in a container ignored.\n"
        "Feb 02 10:00:00 n1 kernel: nfsd: Unable to start recovery! (-22)\n"
        "Feb 02 10:00:00 n1 kernel: nfsd: starting 90-second grace period\n"
    ),
}


@pytest.mark.parametrize("log", HEALTHY.values(), ids=HEALTHY)
def test_nothing_ended_and_nothing_lasts_so_there_is_no_alarm(log: str, tmp_path: Path) -> None:
    assert [finding.symptom for finding in report(tmp_path, log).findings] == []


def test_what_lasts_until_the_end_comes_before_an_error_of_the_start(tmp_path: Path) -> None:
    start = HOUR.format(0, 0) + 'E0202 10:00:00.1 41 node.go:9] node "n7" not found\n'
    work = "".join(
        HOUR.format(n // 60, n % 60) + f"I0202 10:00:01.{n} 41 sync.go:7] pod {n} synced\n" for n in range(900)
    )
    end = HOUR.format(59, 1) + "E0202 10:59:01.1 41 pods.go:3] Error syncing pod x: CrashLoopBackOff\n"
    assert report(tmp_path, start + work + end * 3).findings[0].id == "container_crashes"


def test_data_in_an_error_is_not_its_reason(tmp_path: Path) -> None:
    log = (
        'E0202 10:00:00.1 41 status.go:5] "will retry" err="failed to patch status '
        '\\"{\\\\\\"type\\\\\\":\\\\\\"DiskPressure\\\\\\"}\\": dial tcp: connection refused"\n'
    )
    ids = {finding.id for finding in report(tmp_path, log * 3).findings}
    assert ids
    assert "node_disk" not in ids


def test_the_names_of_printed_fields_are_not_evidence(tmp_path: Path) -> None:
    log = (
        "INFO vLLM API server version 9.9\n"
        "ERROR 02-02 10:00:00 [dump.py:1] Stats(running=1, waiting=0, hits=2, corrupted_files=3, old=4, evicted=5)\n"
        "ERROR 02-02 10:00:00 [core.py:2] RuntimeError: CUDA error: device-side assert triggered\n"
    )
    assert report(tmp_path, log).findings[0].id == "gpu_assert"


def test_a_broken_gpu_is_certain_only_if_it_says_so_itself(tmp_path: Path) -> None:
    lost = report(tmp_path, "[ 99.1] NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus.\n").findings[0]
    code = report(tmp_path, "RuntimeError: CUDA error: an illegal memory access was encountered\n").findings[0]
    assert (lost.id, lost.confidence) == ("gpu_fault", "high")
    assert (code.id, code.confidence) == ("gpu_fault", "medium")
