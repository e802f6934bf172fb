"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import profiling
from gymnast.compat.nemo_gym.profiling import *  # noqa: F403 - for type checkers

sys.modules[__name__] = profiling
