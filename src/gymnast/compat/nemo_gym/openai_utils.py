"""`nemo_gym.openai_utils`: the types of OpenAI's APIs, and a client of compatible endpoints."""

# ruff: noqa: F403 - the module has all names of these
from gymnast.compat.nemo_gym.chat_types import *
from gymnast.compat.nemo_gym.hosted_types import *
from gymnast.compat.nemo_gym.item_types import *
from gymnast.compat.nemo_gym.model_client import *
from gymnast.compat.nemo_gym.response_types import *
from gymnast.compat.nemo_gym.surface import missing_from

__getattr__ = missing_from("nemo_gym.openai_utils")
