"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import benchmarks
from gymnast.compat.nemo_gym.benchmarks import *  # noqa: F403 - for type checkers

sys.modules[__name__] = benchmarks
