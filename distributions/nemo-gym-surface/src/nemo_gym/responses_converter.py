"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import responses_converter
from gymnast.compat.nemo_gym.responses_converter import *  # noqa: F403 - for type checkers
from gymnast.compat.nemo_gym.responses_converter import _usage_detail as _usage_detail  # noqa: PLC0414 - tests of servers import it

sys.modules[__name__] = responses_converter
