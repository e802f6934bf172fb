"""`python -m gymnast.chunks.die_with_parent ARGUMENTS`: the gymnast command in a process that ends with its parent.

For workers whose supervisor may vanish without notice, e.g. with its Ray node: nothing could end them then.
"""

from __future__ import annotations

import runpy

from gymnast.runtime.spawn import die_with_parent


def main() -> None:
    """Run the command line."""
    die_with_parent()
    runpy.run_module("gymnast.cli.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
