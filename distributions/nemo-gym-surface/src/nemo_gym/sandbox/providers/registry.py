"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym.sandbox.providers import registry
from gymnast.compat.nemo_gym.sandbox.providers.registry import *  # noqa: F403 - for type checkers

sys.modules[__name__] = registry
