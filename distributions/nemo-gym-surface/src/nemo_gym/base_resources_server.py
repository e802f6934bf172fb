"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import base_resources_server
from gymnast.compat.nemo_gym.base_resources_server import *  # noqa: F403 - for type checkers

sys.modules[__name__] = base_resources_server
