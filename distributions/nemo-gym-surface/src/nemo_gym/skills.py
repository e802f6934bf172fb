"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import skills
from gymnast.compat.nemo_gym.skills import *  # noqa: F403 - for type checkers

sys.modules[__name__] = skills
