"""`nemo_gym.sandbox.providers.apptainer.provider`."""

from gymnast.compat.nemo_gym.sandbox.providers.containers import ApptainerProvider

__all__ = ["ApptainerProvider"]
