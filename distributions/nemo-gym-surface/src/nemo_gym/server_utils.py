"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import server_utils
from gymnast.compat.nemo_gym.server_utils import *  # noqa: F403 - for type checkers

sys.modules[__name__] = server_utils
