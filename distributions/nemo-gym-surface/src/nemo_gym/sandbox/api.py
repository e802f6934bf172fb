"""The module of this name in `gymnast.compat`, under a second name: a patch of one is a patch of both."""

import sys

from gymnast.compat.nemo_gym.sandbox import api
from gymnast.compat.nemo_gym.sandbox.api import *  # noqa: F403 - for whoever reads types

sys.modules[__name__] = api
