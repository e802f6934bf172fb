"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym.sandbox import config
from gymnast.compat.nemo_gym.sandbox.config import *  # noqa: F403 - for type checkers

sys.modules[__name__] = config
