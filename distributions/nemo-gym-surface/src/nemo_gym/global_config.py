"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import global_config
from gymnast.compat.nemo_gym.global_config import *  # noqa: F403 - for type checkers

sys.modules[__name__] = global_config
