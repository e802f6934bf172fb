"""Cluster files written for NeMo Skills: its keys, translated to ours. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_IGNORED: Final = ("required_env_vars", "job_name_prefix", "skip_hf_home_check", "disable_gpus_per_node")


def translate_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under our keys. Where both spellings are given, ours wins."""
    settings = {key: value for key, value in values.items() if key not in _IGNORED}
    tunnel = settings.pop("ssh_tunnel", None)
    if isinstance(tunnel, dict) and tunnel.get("host"):
        user = f"{tunnel['user']}@" if tunnel.get("user") else ""
        settings.setdefault("host", f"{user}{tunnel['host']}")
        if tunnel.get("identity"):
            settings.setdefault("ssh_options", ["-i", tunnel["identity"]])
    variables = settings.pop("env_vars", None)
    if isinstance(variables, list):  # sbatch itself passes on a bare name
        pairs = (str(variable).partition("=") for variable in variables if "=" in str(variable))
        settings["environment"] = {name: value for name, _, value in pairs} | (settings.get("environment") or {})
    timeouts = settings.pop("timeouts", None)
    if isinstance(timeouts, dict) and settings.get("partition") in timeouts:
        settings.setdefault("time", timeouts[settings["partition"]])
    cpu_partition = settings.pop("cpu_partition", None)
    if cpu_partition:
        settings["merge"] = {"partition": cpu_partition} | (settings.get("merge") or {})
    if settings.get("executor") == "none":
        settings["executor"] = "local"
    if settings.get("containers") and settings.get("executor", "slurm") == "slurm":
        settings.setdefault("runtime", "pyxis")
    return settings
