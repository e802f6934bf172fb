"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym.sandbox.providers import base
from gymnast.compat.nemo_gym.sandbox.providers.base import *  # noqa: F403 - for type checkers

sys.modules[__name__] = base
