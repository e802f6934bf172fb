"""`nemo_gym.sandbox`: sandboxes for commands that a model wrote."""

# ruff: noqa: F403 - the package has all names of these
from gymnast.compat.nemo_gym.sandbox.api import *
from gymnast.compat.nemo_gym.sandbox.config import *
from gymnast.compat.nemo_gym.sandbox.providers import *
from gymnast.compat.nemo_gym.sandbox.utils import *
from gymnast.compat.nemo_gym.surface import missing_from

__getattr__ = missing_from("nemo_gym.sandbox", __file__)
