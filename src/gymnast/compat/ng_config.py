"""Looking at a configuration: the merged YAML, and everything that is wrong with it."""

from __future__ import annotations

from typing import Final

from gymnast.compat.ng_asked import Asked, Fields

BAD: Final = 1


def dump_config(asked: Asked) -> int:
    """The merged YAML, secrets masked."""
    from gymnast.cli.config import masked_yaml

    print(masked_yaml(asked.config(stub_policy=True).checked()), end="")
    return 0


def validate(asked: Asked) -> int:
    """All problems at once; nothing is started."""
    from gymnast.cli.config import check

    config = asked.config(stub_policy=True)
    return check(config, as_json=Fields(config).flag("json"), bad_code=BAD)
