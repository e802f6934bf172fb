"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym.sandbox import api
from gymnast.compat.nemo_gym.sandbox.api import *  # noqa: F403 - for type checkers

sys.modules[__name__] = api
