"""`python -m gymnast.cluster.tethered ARGUMENTS`: the gymnast command in a process that ends with its parent.

For workers whose keeper may vanish without a word, e.g. with its Ray node: nobody could end them any more.
"""

from __future__ import annotations

import runpy

from gymnast.runtime.spawn import end_with_parent


def main() -> None:
    """Run the command line."""
    end_with_parent()
    runpy.run_module("gymnast.cli.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
