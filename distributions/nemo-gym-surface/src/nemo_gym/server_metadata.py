"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import server_metadata
from gymnast.compat.nemo_gym.server_metadata import *  # noqa: F403 - for type checkers

sys.modules[__name__] = server_metadata
