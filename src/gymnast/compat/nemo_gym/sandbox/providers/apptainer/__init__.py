"""`nemo_gym.sandbox.providers.apptainer`."""

from gymnast.compat.nemo_gym.sandbox.providers.apptainer import provider
from gymnast.compat.nemo_gym.sandbox.providers.apptainer.provider import ApptainerProvider
from gymnast.compat.nemo_gym.surface import missing_from

__all__ = ["ApptainerProvider", "provider"]

__getattr__ = missing_from("nemo_gym.sandbox.providers.apptainer", __file__)
