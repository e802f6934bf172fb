"""Holds what the package of this name in `gymnast.compat` does."""

from gymnast.compat.nemo_gym.sandbox.providers.apptainer import *  # noqa: F403 - that is what it is for
from gymnast.compat.nemo_gym.sandbox.providers.apptainer import __getattr__  # noqa: F401 - says what is missing
from gymnast.compat.nemo_gym.surface import explain_missing_modules

explain_missing_modules(__path__)  # noqa: F405 - every package has one
