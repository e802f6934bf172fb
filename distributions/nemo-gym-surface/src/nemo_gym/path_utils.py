"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import path_utils
from gymnast.compat.nemo_gym.path_utils import *  # noqa: F403 - for type checkers

sys.modules[__name__] = path_utils
