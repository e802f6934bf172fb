"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import mcp_auto_exposure
from gymnast.compat.nemo_gym.mcp_auto_exposure import *  # noqa: F403 - for type checkers

sys.modules[__name__] = mcp_auto_exposure
