"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import openai_utils
from gymnast.compat.nemo_gym.openai_utils import *  # noqa: F403 - for type checkers

sys.modules[__name__] = openai_utils
