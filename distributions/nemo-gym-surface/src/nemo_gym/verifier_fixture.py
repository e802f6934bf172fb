"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import verifier_fixture
from gymnast.compat.nemo_gym.verifier_fixture import *  # noqa: F403 - for type checkers

sys.modules[__name__] = verifier_fixture
