"""Printing and validating a configuration."""

from __future__ import annotations

from typing import Final

from gymnast.compat.ng_arguments import Fields, NgArguments

INVALID: Final = 1


def dump_config(arguments: NgArguments) -> int:
    """Print the merged YAML, secrets masked."""
    from gymnast.cli.config import masked_yaml

    print(masked_yaml(arguments.config(stub_policy=True).require_valid()), end="")
    return 0


def validate(arguments: NgArguments) -> int:
    """Print all problems; nothing is started."""
    from gymnast.cli.config import check

    config = arguments.config(stub_policy=True)
    return check(config, as_json=Fields(config).flag("json"), bad_code=INVALID)
