"""The module of this name in `gymnast.compat`, under a second name: a patch of one is a patch of both."""

import sys

from gymnast.compat.nemo_gym import base_resources_server
from gymnast.compat.nemo_gym.base_resources_server import *  # noqa: F403 - for whoever reads types

sys.modules[__name__] = base_resources_server
