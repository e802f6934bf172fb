"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import rollout_collection
from gymnast.compat.nemo_gym.rollout_collection import *  # noqa: F403 - for type checkers
from gymnast.compat.nemo_gym.rollout_collection import _attach_trajectory_record as _attach_trajectory_record  # noqa: PLC0414 - tests of servers import it
from gymnast.compat.nemo_gym.rollout_collection import _get_max_rollout_attempts as _get_max_rollout_attempts  # noqa: PLC0414 - tests of servers import it

sys.modules[__name__] = rollout_collection
