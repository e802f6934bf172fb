"""Cluster files written for NeMo Skills: the keys that it has and we spell otherwise. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_WITHOUT_MEANING: Final = ("required_env_vars", "job_name_prefix", "skip_hf_home_check", "disable_gpus_per_node")


def in_our_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under our keys; what is said in our words as well is kept."""
    found = {key: value for key, value in values.items() if key not in _WITHOUT_MEANING}
    tunnel = found.pop("ssh_tunnel", None)
    if isinstance(tunnel, dict) and tunnel.get("host"):
        user = f"{tunnel['user']}@" if tunnel.get("user") else ""
        found.setdefault("host", f"{user}{tunnel['host']}")
        if tunnel.get("identity"):
            found.setdefault("ssh_options", ["-i", tunnel["identity"]])
    variables = found.pop("env_vars", None)
    if isinstance(variables, list):  # a name alone is handed on by sbatch itself
        pairs = (str(one).partition("=") for one in variables if "=" in str(one))
        found["environment"] = {name: value for name, _, value in pairs} | (found.get("environment") or {})
    timeouts = found.pop("timeouts", None)
    if isinstance(timeouts, dict) and found.get("partition") in timeouts:
        found.setdefault("time", timeouts[found["partition"]])
    cpu_partition = found.pop("cpu_partition", None)
    if cpu_partition:
        found["merge"] = {"partition": cpu_partition} | (found.get("merge") or {})
    if found.get("executor") == "none":
        found["executor"] = "local"
    if found.get("containers") and found.get("executor", "slurm") == "slurm":
        found.setdefault("runtime", "pyxis")
    return found
