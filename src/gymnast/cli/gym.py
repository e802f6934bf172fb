"""`gymnast gym …`: command lines written for NeMo Gym's `gym`, with its words and options."""

from __future__ import annotations

import typer


def command(ctx: typer.Context) -> int:
    """Take a command line of NeMo Gym's `gym`: gymnast gym eval run --resources-server mcqa --input … --output …

    Same words, same options, same Hydra-style settings; exit 1 on a wrong configuration, 2 on a wrong option.
    `gymnast gym --help` lists the commands, `gymnast gym eval run --help` the options of one.
    """
    from gymnast.compat.gym_entry import run_gym

    return run_gym(ctx.args)
