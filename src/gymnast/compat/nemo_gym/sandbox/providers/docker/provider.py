"""`nemo_gym.sandbox.providers.docker.provider`."""

from gymnast.compat.nemo_gym.sandbox.providers.containers import DockerCreateConfig, DockerProvider

__all__ = ["DockerCreateConfig", "DockerProvider"]
