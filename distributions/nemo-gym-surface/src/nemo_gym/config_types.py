"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import config_types
from gymnast.compat.nemo_gym.config_types import *  # noqa: F403 - for type checkers

sys.modules[__name__] = config_types
