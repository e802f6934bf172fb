"""The name `nemo_gym`, provided by Gymnast. What it holds lives in `gymnast.compat.nemo_gym`.

Importing it makes the checkout of the importing file importable (`resources_servers.…`), as its users expect.
"""

from gymnast.compat.nemo_gym import __getattr__, __version__, make_checkout_importable  # noqa: F401 - the first says what is missing
from gymnast.compat.nemo_gym.surface import explain_missing_modules, refuse_the_other

__all__ = ["__version__"]

refuse_the_other()
explain_missing_modules(__path__)
make_checkout_importable()
