"""The package `nemo_gym`, provided by Gymnast and implemented in `gymnast.compat.nemo_gym`.

Importing it makes the checkout of the importing file importable (`resources_servers.…`), as its users expect.
"""

from gymnast.compat.nemo_gym import __getattr__, __version__, make_checkout_importable  # noqa: F401 - the first explains missing names
from gymnast.compat.nemo_gym.surface import explain_missing_modules, reject_nvidia_package

__all__ = ["__version__"]

reject_nvidia_package()
explain_missing_modules(__path__)
make_checkout_importable()
