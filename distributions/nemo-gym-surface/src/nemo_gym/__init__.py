"""The package `nemo_gym`, provided by Gymnast and implemented in `gymnast.compat.nemo_gym`.

Importing it makes the checkout of the importing file importable (`resources_servers.…`), as its users expect.
"""

from gymnast.compat.nemo_gym import (  # noqa: F401 - the names of the package; `__getattr__` has more, and explains missing ones
    NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME,
    PUBLIC_NAMES,
    __getattr__,
    __package_name__,
    __version__,
    component_search_roots,
    make_checkout_importable,
)
from gymnast.compat.nemo_gym.surface import explain_missing_modules, reject_nvidia_package

__all__ = ["NEMO_GYM_EXTRA_ROOTS_ENV_VAR_NAME", "__package_name__", "__version__", "component_search_roots"]
__all__ += ["CACHE_DIR", "PARENT_DIR", "RESULTS_DIR", "ROOT_DIR", "WORKING_DIR"]
__all__ += list(PUBLIC_NAMES)

reject_nvidia_package()
explain_missing_modules(__path__)
make_checkout_importable()
