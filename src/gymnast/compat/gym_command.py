"""`gymnast gym …`: command lines written for NeMo Gym's `gym`."""

from __future__ import annotations

import typer


def command(ctx: typer.Context) -> int:
    """Run a command line of NeMo Gym's `gym`.

    For example gymnast gym eval run --resources-server mcqa --input … --output … Takes the same commands, options and
    Hydra-style settings; exits 1 on a wrong configuration and 2 on a wrong option. `gymnast gym --help` lists the
    commands, `gymnast gym eval run --help` the options of one.
    """
    from gymnast.compat.gym_entry import run_gym

    return run_gym(ctx.args)
