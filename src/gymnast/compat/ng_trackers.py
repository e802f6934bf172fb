"""Trackers that NeMo Gym's fields configure: `wandb_project`, `mlflow_tracking_uri` and the others.

As there, a tracker is used only if all of its fields are set; a key may also come from the environment here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gymnast.tracking.choice import TrackerChoice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gymnast.compat.ng_arguments import Fields

_WANDB: Final = {"project": "wandb_project", "name": "wandb_name"}
_MLFLOW: Final = {
    "uri": "mlflow_tracking_uri",
    "experiment": "mlflow_experiment_name",
    "name": "mlflow_run_name",
}
_VARIABLES: Final = {
    "wandb_api_key": "WANDB_API_KEY",
    "mlflow_tracking_uri": "MLFLOW_TRACKING_URI",
    "mlflow_tracking_token": "MLFLOW_TRACKING_TOKEN",
}


def read_trackers(fields: Fields) -> list[TrackerChoice]:
    """The trackers that a configuration asks for."""
    return [*_read_wandb(fields), *_read_mlflow(fields)]


def _read_wandb(fields: Fields) -> Iterator[TrackerChoice]:
    values = _texts(fields, _WANDB)
    if all(values.values()):
        yield TrackerChoice("wandb", values["project"], values["name"], _variables(fields, "wandb"))


def _read_mlflow(fields: Fields) -> Iterator[TrackerChoice]:
    values = _texts(fields, _MLFLOW)
    if all(values.values()):
        yield TrackerChoice("mlflow", values["experiment"], values["name"], _variables(fields, "mlflow"))


def _texts(fields: Fields, keys: Mapping[str, str]) -> dict[str, str]:
    return {name: fields.optional(key) or "" for name, key in keys.items()}


def _variables(fields: Fields, prefix: str) -> tuple[tuple[str, str], ...]:
    given = ((variable, fields.optional(key)) for key, variable in _VARIABLES.items() if key.startswith(prefix))
    return tuple((variable, value) for variable, value in given if value)
