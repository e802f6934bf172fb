"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import rollout_correlation
from gymnast.compat.nemo_gym.rollout_correlation import *  # noqa: F403 - for type checkers

sys.modules[__name__] = rollout_correlation
