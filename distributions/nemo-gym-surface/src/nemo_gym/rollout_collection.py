"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import rollout_collection
from gymnast.compat.nemo_gym.rollout_collection import *  # noqa: F403 - for type checkers

sys.modules[__name__] = rollout_collection
