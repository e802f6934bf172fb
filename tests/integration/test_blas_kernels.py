"""The embedded policy's numbers do not depend on what is computed together, on every BLAS kernel this processor can run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = "cut_into_calls or batched_equals_unbatched or one_pass or forgotten or torch_implementation or one_by_one"

KERNELS = {
    "Prescott": {"pni"},
    "Nehalem": {"sse4_2"},
    "Sandybridge": {"avx"},
    "Haswell": {"avx2", "fma"},
    "Zen": {"avx2", "fma"},
    "SkylakeX": {"avx512f", "avx512vl", "avx512bw", "avx512dq"},
}
"""Of OpenBLAS, and the processor flags each needs: on another processor it would die of an illegal instruction."""


def processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())


def run_promises(**environ: str) -> None:
    unit = "tests/unit/test_embedded_policy.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore::ImportWarning", unit, "-k", PROMISES],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("kernel", KERNELS)
def test_batches_change_nothing_on(kernel: str) -> None:
    missing = KERNELS[kernel] - processor_flags()
    if missing:
        pytest.skip(f"this processor cannot run OpenBLAS's {kernel} kernel ({', '.join(sorted(missing))} missing)")
    run_promises(OPENBLAS_CORETYPE=kernel)


@pytest.mark.parametrize("disabled", ["X86_V4 AVX512_ICL AVX512_SPR", "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"])
def test_batches_change_nothing_without_vector_units(disabled: str) -> None:
    """numpy's own loops (exp, sums); names that this processor or numpy does not have are ignored with a warning."""
    run_promises(NPY_DISABLE_CPU_FEATURES=disabled)


def test_batches_change_nothing_with_threads() -> None:
    run_promises(OPENBLAS_NUM_THREADS="2")
