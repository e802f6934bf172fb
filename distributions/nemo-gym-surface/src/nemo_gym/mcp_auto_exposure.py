"""The module of this name in `gymnast.compat`, under a second name: a patch of one is a patch of both."""

import sys

from gymnast.compat.nemo_gym import mcp_auto_exposure
from gymnast.compat.nemo_gym.mcp_auto_exposure import *  # noqa: F403 - for whoever reads types

sys.modules[__name__] = mcp_auto_exposure
