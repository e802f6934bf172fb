"""Joins what an agent reports with the captured model calls: each reference to a call becomes the call's full identity.

Nothing is guessed: a reference that fits no call, several, or another invocation's stays as it is and leaves a gap.
"""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from gymnast.compat.nemo_gym.rollout_observability import (
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    ModelCallRef,
    ObservationGap,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gymnast.compat.nemo_gym.capture import ModelCallRecord

AMBIGUOUS: Final = "model_call_reference_ambiguous"
CONFLICT: Final = "model_call_reference_conflict"
UNMATCHED: Final = "model_call_reference_unmatched"
NO_OWNER: Final = "model_call_ownership_unavailable"
_CAPTURED: Final = "capture:"


def join_model_call_observations(
    bundle: AgentObservationBundle, calls: Iterable[ModelCallRecord]
) -> AgentObservationBundle:
    """The bundle with its references resolved; the gaps of an earlier join are replaced."""
    join = _Join(list(calls))
    joined = bundle.model_copy(deep=True)
    for record in joined.records:
        if isinstance(record, AgentInvocation):
            join.invocation(record)
    for record in joined.records:
        if isinstance(record, ContextCompactionObservation):
            join.compaction(record)
    kept = [gap for gap in bundle.gaps if not _is_of_join(gap)]
    gaps = [*kept, *join.gaps, *join.find_unowned_calls()]
    joined.gaps = list({(gap.code, gap.invocation_id, gap.detail): gap for gap in gaps}.values())
    return joined


def associate_compactions(bundle: AgentObservationBundle, calls: list[ModelCallRecord]) -> AgentObservationBundle:
    """Let the agent of the bundle's source find the calls of its compactions, if its checkout has code for that."""
    name = f"responses_api_agents.{bundle.source}_agent"
    try:
        module: Any = import_module(f"{name}.observability")
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.observability".startswith(error.name):
            return bundle
        raise
    associate = getattr(module, f"associate_{bundle.source}_compaction_calls", None)
    result: AgentObservationBundle = associate(bundle, calls) if associate is not None else bundle
    return result


def _is_of_join(gap: ObservationGap) -> bool:
    if gap.code == NO_OWNER:
        return gap.invocation_id is None and (gap.detail or "").startswith(_CAPTURED)
    return gap.code in {AMBIGUOUS, CONFLICT, UNMATCHED}


class _Join:
    """The captured calls, and which invocation each belongs to."""

    def __init__(self, calls: list[ModelCallRecord]) -> None:
        self.gaps: list[ObservationGap] = []
        self._calls = calls
        self._owners: dict[int, str] = {}
        self._by_id: dict[str, list[ModelCallRecord]] = defaultdict(list)
        self._by_response: dict[tuple[str, str], list[ModelCallRecord]] = defaultdict(list)
        for call in calls:
            if call.model_call_id:
                self._by_id[call.model_call_id].append(call)
            if call.model_ref is not None and call.response_id:
                self._by_response[call.model_ref.name, call.response_id].append(call)

    def invocation(self, record: AgentInvocation) -> None:
        record.model_calls = [self._claim_call(reference, record.invocation_id) for reference in record.model_calls]

    def compaction(self, record: ContextCompactionObservation) -> None:
        record.model_calls = [self._of_compaction(reference, record) for reference in record.model_calls]
        for name in ("before_model_call", "after_model_call"):
            reference = getattr(record, name)
            if reference is not None:
                setattr(record, name, self._boundary(reference, record, name))

    def find_unowned_calls(self) -> Iterator[ObservationGap]:
        """A gap for each call that no invocation refers to."""
        for call in self._calls:
            if id(call) not in self._owners:
                name = call.model_call_id or call.response_id or "unknown"
                yield ObservationGap(code=NO_OWNER, detail=f"{_CAPTURED}{name}:call_index={call.call_index}")

    def _claim_call(self, reference: ModelCallRef, owner: str) -> ModelCallRef:
        call = self._find(reference, owner, "")
        if call is None:
            return reference
        if id(call) in self._owners:
            self._add_gap(CONFLICT, owner, _name(call))
            return reference
        self._owners[id(call)] = owner
        return _identity(call)

    def _of_compaction(self, reference: ModelCallRef, record: ContextCompactionObservation) -> ModelCallRef:
        call = self._find(reference, record.invocation_id, "model_calls:")
        owner = self._owners.get(id(call)) if call is not None else None
        if call is None:
            return reference
        if owner != record.invocation_id:
            code = NO_OWNER if owner is None else CONFLICT
            self._add_gap(code, record.invocation_id, f"model_calls:{_name(call)}")
            return reference
        return _identity(call)

    def _boundary(self, reference: ModelCallRef, record: ContextCompactionObservation, field: str) -> ModelCallRef:
        call = self._find(reference, record.invocation_id, f"{field}:")
        if call is None:
            return reference
        if self._owners.get(id(call), record.invocation_id) != record.invocation_id:
            self._add_gap(CONFLICT, record.invocation_id, f"{field}:{_name(call)}")
            return reference
        return _identity(call)

    def _find(self, reference: ModelCallRef, invocation: str, place: str) -> ModelCallRecord | None:
        candidates = self._candidates(reference)
        if len(candidates) == 1:
            return candidates[0]
        detail = f"{place}{reference.model_call_id or reference.response_id}"
        self._add_gap(AMBIGUOUS if candidates else UNMATCHED, invocation, detail)
        return None

    def _candidates(self, reference: ModelCallRef) -> list[ModelCallRecord]:
        if reference.model_call_id:
            return [
                call
                for call in self._by_id.get(reference.model_call_id, ())
                if reference.model_ref in (None, call.model_ref) and reference.response_id in (None, call.response_id)
            ]
        if reference.model_ref is None or reference.response_id is None:
            return []
        return self._by_response.get((reference.model_ref.name, reference.response_id), [])

    def _add_gap(self, code: str, invocation: str, detail: str | None) -> None:
        self.gaps.append(ObservationGap(code=code, invocation_id=invocation, detail=detail))


def _name(call: ModelCallRecord) -> str | None:
    return call.model_call_id or call.response_id


def _identity(call: ModelCallRecord) -> ModelCallRef:
    return ModelCallRef(model_call_id=call.model_call_id, model_ref=call.model_ref, response_id=call.response_id)
