"""The trackers, each behind the same three calls. Used only in the process of a tracker (`tracker_process`).

Libraries are imported when a tracker starts. Projects, keys and servers come from each library's own environment
variables, unless the run names a place.
"""

from __future__ import annotations

import math
import re
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from gymnast.config.environ import inherited_environ
from gymnast.tracking.messages import Started
from gymnast.tracking.tensorboard import EventFile, as_markdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gymnast.tracking.messages import Finish, Point, Start

_PROJECT: Final = "gymnast"
_MAX_MLFLOW_PARAMS: Final = 200
_MAX_MLFLOW_VALUE: Final = 500
_MAX_MLFLOW_NAME: Final = 250
_MAX_MLFLOW_BATCH: Final = 1000
_NOT_IN_MLFLOW_NAMES: Final = re.compile(r"[^\w\-. :/]")
_COMPLETE: Final = "complete"
_X_AXIS: Final = "step"


class Tracker(Protocol):
    """One run of a tracker. Any method may raise or block."""

    def start(self, start: Start) -> Started: ...

    def log(self, point: Point) -> None: ...

    def finish(self, finish: Finish) -> None: ...


class TensorBoard:
    """Event files. Artifacts stay where they are; a text names them."""

    def start(self, start: Start) -> Started:
        folder = Path(start.resume_id or start.place or start.folder).absolute()
        if start.resume_id is None and start.place is not None:
            folder /= start.name
        self._events = EventFile(folder)
        self._step = 0
        if start.config:
            self._events.write_text(0, time.time(), "config", as_markdown(dict(flatten(start.config))))
        return Started(str(folder), f"tensorboard --logdir {folder}")

    def log(self, point: Point) -> None:
        self._step = point.step
        self._events.write_scalars(point.step, point.at, point.figures)

    def finish(self, finish: Finish) -> None:
        summary = {"state": finish.state, **dict(flatten(finish.summary)), "files": ", ".join(finish.files)}
        self._events.write_text(self._step, time.time(), "summary", as_markdown(summary))
        self._events.close()


class Wandb:
    """Weights & Biases. The number of settled rollouts is a metric of its own, the x-axis of all others: W&B drops
    points whose step does not grow, and a run that retries failed rollouts goes back.
    """

    def start(self, start: Start) -> Started:
        wandb = self._wandb = import_module("wandb")
        settings = wandb.Settings(console="off", disable_git=True, save_code=False, x_disable_stats=True)
        self._run: Any = wandb.init(
            project=_place(start, "WANDB_PROJECT"),
            name=start.name,
            group=start.group,
            id=start.resume_id,
            resume="allow" if start.resume_id else None,
            config=start.config,
            settings=settings,
        )
        self._run.define_metric(_X_AXIS)
        self._run.define_metric("*", step_metric=_X_AXIS)
        self._name = start.name
        return Started(str(self._run.id), self._run.url or f"wandb sync {Path(self._run.dir).parent}")

    def log(self, point: Point) -> None:
        self._run.log({_X_AXIS: point.step, **point.figures})

    def finish(self, finish: Finish) -> None:
        self._run.summary.update({"state": finish.state, **dict(flatten(finish.summary))})
        if finish.files:
            artifact = self._wandb.Artifact(re.sub(r"[^\w.-]", "-", f"{self._name}-{self._run.id}")[:128], type="run")
            for path in finish.files:
                artifact.add_file(path)
            self._run.log_artifact(artifact)
        self._run.finish(exit_code=0 if finish.state == _COMPLETE else 1)


class Mlflow:
    """MLflow, through its client: no active run of this process, nothing to clean up at exit."""

    def start(self, start: Start) -> Started:
        mlflow = self._mlflow = import_module("mlflow")
        self._entities = import_module("mlflow.entities")
        self._client: Any = mlflow.MlflowClient()
        run = self._resume(start.resume_id) if start.resume_id is not None else None
        if run is None:
            experiment_id = self._experiment(_place(start, "MLFLOW_EXPERIMENT_NAME"))
            tags = {"gymnast.group": start.group} if start.group else {}
            run = self._client.create_run(experiment_id, run_name=start.name, tags=tags)
            params = [
                self._entities.Param(_mlflow_name(name), str(value)[:_MAX_MLFLOW_VALUE])
                for name, value in flatten(start.config)
            ]
            self._client.log_batch(run.info.run_id, params=params[:_MAX_MLFLOW_PARAMS], tags=[])
            self._client.log_dict(run.info.run_id, start.config, "config.json")
        self._id: str = run.info.run_id
        return Started(self._id, self._url(run))

    def log(self, point: Point) -> None:
        self._log(point.figures, point.step, point.at)

    def finish(self, finish: Finish) -> None:
        figures = {f"summary/{name}": value for name, value in flatten(finish.summary) if _is_number(value)}
        self._log(figures, 0, time.time())
        self._client.log_dict(self._id, finish.summary, "summary.json")
        for path in finish.files:
            self._client.log_artifact(self._id, path)
        status = {_COMPLETE: "FINISHED", "interrupted": "KILLED"}.get(finish.state, "FAILED")
        self._client.set_terminated(self._id, status=status)

    def _log(self, figures: Mapping[str, float], step: int, at: float) -> None:
        values = [(_mlflow_name(name), value) for name, value in figures.items() if math.isfinite(value)]
        metrics = [self._entities.Metric(name, value, int(at * 1000), step) for name, value in values]
        for first in range(0, len(metrics), _MAX_MLFLOW_BATCH):
            self._client.log_batch(self._id, metrics=metrics[first : first + _MAX_MLFLOW_BATCH])

    def _resume(self, run_id: str) -> Any:
        """The run to continue, or None if it was deleted: then a new one starts."""
        try:
            run = self._client.get_run(run_id)
            self._client.update_run(run_id, status="RUNNING")
        except self._mlflow.MlflowException as error:
            if error.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
                return None
            raise
        return run

    def _experiment(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(name)
        return experiment.experiment_id if experiment is not None else str(self._client.create_experiment(name))

    def _url(self, run: Any) -> str | None:
        server = str(self._mlflow.get_tracking_uri()).rstrip("/")
        if not server.startswith("http"):
            return server
        return f"{server}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"


class Trackio:
    """Trackio. Runs are continued by name."""

    def start(self, start: Start) -> Started:
        trackio = self._trackio = import_module("trackio")
        project = _place(start, "TRACKIO_PROJECT")
        self._run: Any = trackio.init(
            project=project,
            name=start.resume_id or f"{start.name}-{time.strftime('%Y%m%d-%H%M%S')}",
            group=start.group,
            resume="allow" if start.resume_id else "never",
            config={name.lstrip("_"): value for name, value in flatten(start.config)},
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        self._step = 0
        return Started(str(self._run.name), f"trackio show --project {project}")

    def log(self, point: Point) -> None:
        self._step = point.step
        self._trackio.log(dict(point.figures), step=point.step)

    def finish(self, finish: Finish) -> None:
        summary = {f"summary/{name}": value for name, value in flatten(finish.summary) if _is_number(value)}
        if summary:
            self._trackio.log(summary, step=self._step)
        if finish.files:
            artifact = self._trackio.Artifact(f"run-{self._run.name}".replace("/", "-"), type="run")
            for path in finish.files:
                artifact.add_file(path)
            self._trackio.log_artifact(artifact)
        self._trackio.finish()


TRACKERS: Final[Mapping[str, type[Tracker]]] = {
    "wandb": Wandb,
    "mlflow": Mlflow,
    "tensorboard": TensorBoard,
    "trackio": Trackio,
}


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings, by dotted name."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _place(start: Start, variable: str) -> str:
    """The project or experiment: as the run names it, else as the library's variable does."""
    return start.place or inherited_environ([variable]).get(variable) or _PROJECT


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mlflow_name(name: str) -> str:
    return _NOT_IN_MLFLOW_NAMES.sub("_", name)[:_MAX_MLFLOW_NAME]
