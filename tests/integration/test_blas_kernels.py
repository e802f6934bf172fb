"""The embedded policy's numbers do not depend on the batch, on every BLAS kernel that this processor can run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.parts import skip_without

ROOT = Path(__file__).parents[2]
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


PLAIN_PRODUCTS = """
import numpy
for inner, outer in ((192, 832), (416, 192), (192, 768), (32, 128), (128, 32)):
    for right in (numpy.ones((inner, outer), "f4"), numpy.ones((outer, inner), "f4").T):
        numpy.ones((4, inner), "f4") @ right
"""


def run_python(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a BLAS reads its settings when it is loaded."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def check_batch_invariance(**environ: str) -> None:
    done = run_python("-m", "tests.helpers.batch_invariance", **environ)
    if done.returncode < 0 and run_python("-c", PLAIN_PRODUCTS, **environ).returncode < 0:
        skip_without("another processor", f"numpy's own products crash here with {environ}")
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("kernel", KERNELS)
def test_batches_change_nothing_on(kernel: str) -> None:
    missing = KERNELS[kernel] - processor_flags()
    if missing:
        skip_without("another processor", f"{kernel} kernel: {', '.join(sorted(missing))}")
    check_batch_invariance(OPENBLAS_CORETYPE=kernel)


@pytest.mark.parametrize("disabled", ["X86_V4 AVX512_ICL AVX512_SPR", "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"])
def test_batches_change_nothing_without_vector_units(disabled: str) -> None:
    """numpy's own loops (exp, sums); names that this processor or numpy does not have are ignored with a warning."""
    check_batch_invariance(NPY_DISABLE_CPU_FEATURES=disabled)


def test_batches_change_nothing_with_threads() -> None:
    check_batch_invariance(OPENBLAS_NUM_THREADS="2")
