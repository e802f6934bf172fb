"""Re-exports the package in `gymnast.compat.nemo_gym`."""

from gymnast.compat.nemo_gym.sandbox import *  # noqa: F403 - a re-export
from gymnast.compat.nemo_gym.sandbox import __getattr__  # noqa: F401 - explains missing names
from gymnast.compat.nemo_gym.surface import explain_missing_modules

explain_missing_modules(__path__)  # noqa: F405 - every package has one
