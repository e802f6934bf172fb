"""An alias of the module in `gymnast.compat.nemo_gym`: patching one patches both."""

import sys

from gymnast.compat.nemo_gym import base_responses_api_model
from gymnast.compat.nemo_gym.base_responses_api_model import *  # noqa: F403 - for type checkers
from gymnast.compat.nemo_gym.base_responses_api_model import _CaptureMiddleware as _CaptureMiddleware  # noqa: PLC0414 - tests of servers import it

sys.modules[__name__] = base_responses_api_model
