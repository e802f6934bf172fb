"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import reward_profile
from gymnast.compat.nemo_gym.reward_profile import *  # noqa: F403 - for type checkers

sys.modules[__name__] = reward_profile
