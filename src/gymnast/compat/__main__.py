"""`python -m gymnast.compat ng_collect_rollouts +key=value …`: the ng_* commands where no script is on PATH."""

from __future__ import annotations

import sys

from gymnast.compat import ng


def main() -> None:
    """Run the command that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else "ng_help"
    if name not in ng.COMMANDS:
        sys.stderr.write(f"unknown command {name}; choose one of: {', '.join(ng.COMMANDS)}\n")
        sys.exit(2)
    sys.argv = [name, *sys.argv[2:]]
    getattr(ng, name.removeprefix("ng_"))()


if __name__ == "__main__":
    main()
