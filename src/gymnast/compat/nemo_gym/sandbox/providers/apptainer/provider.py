"""`nemo_gym.sandbox.providers.apptainer.provider`."""

from gymnast.compat.nemo_gym.sandbox.providers.container_settings import ApptainerCreateConfig, ApptainerExecConfig
from gymnast.compat.nemo_gym.sandbox.providers.containers import ApptainerProvider, _require_apptainer

__all__ = ["ApptainerCreateConfig", "ApptainerExecConfig", "ApptainerProvider", "_require_apptainer"]
