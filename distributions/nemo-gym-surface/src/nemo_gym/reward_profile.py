"""The module of this name in `gymnast.compat`, under a second name: a patch of one is a patch of both."""

import sys

from gymnast.compat.nemo_gym import reward_profile
from gymnast.compat.nemo_gym.reward_profile import *  # noqa: F403 - for whoever reads types

sys.modules[__name__] = reward_profile
