"""Every module of the import surface can be the first that a program imports."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys
import nemo_gym

names = [module.name for module in pkgutil.iter_modules(nemo_gym.__path__, "nemo_gym.")]
for name in names:
    for loaded in [known for known in sys.modules if known.startswith(("nemo_gym", "gymnast.compat.nemo_gym"))]:
        del sys.modules[loaded]
    importlib.import_module(name)
print(len(names))
"""


def test_no_module_needs_another_to_be_imported_before_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 20
