"""Attaches the captured model calls of a rollout to its result row, and joins the agent's observations with them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from gymnast.compat.nemo_gym.capture import CaptureStore, ModelCallRecord, call_metrics, read_available_records
from gymnast.compat.nemo_gym.model_call_joins import associate_compactions, join_model_call_observations
from gymnast.compat.nemo_gym.rollout_observability import AgentObservationBundle, ObservationGap
from gymnast.types.task import correlation_id
from gymnast.types.usage import CALL_CAPTURE

if TYPE_CHECKING:
    from pathlib import Path

OBSERVATIONS: Final = "ng_agent_observations"
_PAYLOADS: Final = {"request", "response", "request_raw", "response_raw"}
_log = logging.getLogger(__name__)


def merge_model_call_capture_into_record(
    record: dict[str, Any], capture_dirs: list[Path], *, include_payloads: bool = False
) -> dict[str, Any]:
    """Attach the calls of a result row's rollout to the row, and return it. What is missing is listed as gaps."""
    rollout_id = correlation_id(record)
    if not capture_dirs or rollout_id is None:
        return record
    calls, gaps = _read_calls(rollout_id, capture_dirs)
    if record.get(OBSERVATIONS) is not None:
        try:
            bundle = AgentObservationBundle.model_validate(record[OBSERVATIONS])
            record[OBSERVATIONS] = _join(bundle, calls).model_dump(mode="json")
        except ValidationError:
            _log.warning("invalid agent observations of rollout %s", rollout_id, exc_info=True)
            gaps.append(ObservationGap(code="agent_observation_join_failed"))
    capture: dict[str, Any] = {
        "rollout_id": rollout_id,
        "metrics": call_metrics(calls),
        "calls": [call.model_dump(exclude=None if include_payloads else _PAYLOADS) for call in calls],
    }
    if gaps:
        capture["gaps"] = [gap.model_dump(mode="json", exclude_none=True) for gap in gaps]
    record[CALL_CAPTURE] = capture
    return record


def _read_calls(rollout_id: str, folders: list[Path]) -> tuple[list[ModelCallRecord], list[ObservationGap]]:
    stores = (CaptureStore(folder) for folder in folders)
    known = (store for store in stores if store.path_for(rollout_id).exists() or store.is_incomplete(rollout_id))
    store = next(known, None)
    if store is None:
        return [], [ObservationGap(code="model_call_capture_no_records")]
    calls, unreadable = read_available_records(store, rollout_id)
    gaps = []
    if unreadable:
        gaps.append(ObservationGap(code="model_call_capture_records_unreadable", detail=f"count={unreadable}"))
    if store.is_incomplete(rollout_id):
        gaps.append(ObservationGap(code="model_call_capture_incomplete"))
    elif not calls and not unreadable:
        gaps.append(ObservationGap(code="model_call_capture_no_records"))
    return calls, gaps


def _join(bundle: AgentObservationBundle, calls: list[ModelCallRecord]) -> AgentObservationBundle:
    try:
        bundle = associate_compactions(bundle, calls)
    except Exception:  # noqa: BLE001 - the agent's own code; its failure costs its own references only
        _log.warning("cannot find the compaction calls of %s", bundle.source, exc_info=True)
        bundle.gaps.append(ObservationGap(code="compaction_model_call_join_failed"))
    return join_model_call_observations(bundle, calls)
