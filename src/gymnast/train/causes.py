"""The likely causes of missing rollouts and what to do: a table over failure kinds. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.train.errors import FewerRolloutsError, RolloutsUnavailableError
from gymnast.types.failure import FailureKind, Layer, Recovery, kind_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.train.samples import RolloutFailure
    from gymnast.types.task import RolloutKey

GROUP_DEADLINE: Final = "group_deadline"
BATCH_DEADLINE: Final = "batch_deadline"
NEVER_CAME: Final = "never_came_back"
STOPPED: Final = "stopped"
SURPLUS: Final = "surplus"
_MAX_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Cause:
    """The likely cause of a failure kind, and the setting that helps."""

    what: str
    next: str


_DIED: Final = Cause(
    "an agent or server process crashed or was killed, usually by the kernel's OOM killer, because prompts × "
    "generations{size} is too much for this host at the same time",
    "lower concurrency (rollouts in flight{now}), or prompts × generations; gymnast doctor and the instance's log show "
    "why it died",
)
_CAUSES: Final[dict[str, Cause]] = {
    NEVER_CAME: Cause(
        "the run ended before they finished: a server was unreachable for too long, or the budget was used up",
        "see why it ended above; if a process died, lower concurrency{now}; if the endpoint restarts slowly, raise "
        "give_up_after_s",
    ),
    FailureKind.MODEL_UNREACHABLE: Cause(
        "the policy endpoint is not running, restarts, or its address is wrong",
        "check that it runs; if it restarts slowly, raise give_up_after_s",
    ),
    FailureKind.ROLLOUT_TIMEOUT: Cause(
        "single rollouts exceed their time limit",
        "raise row_timeout_s{row}, limit the agent's max_steps, or lower concurrency{now}",
    ),
    **dict.fromkeys(
        (
            FailureKind.OUT_OF_MEMORY,
            FailureKind.WORKER_DIED,
            FailureKind.INSTANCE_DIED,
            FailureKind.AGENT_UNREACHABLE,
            FailureKind.ENVIRONMENT_UNREACHABLE,
        ),
        _DIED,
    ),
    GROUP_DEADLINE: Cause(
        "some rollouts of a group take much longer than the others", "raise group_timeout_s, or limit max_steps"
    ),
    BATCH_DEADLINE: Cause(
        "the batch is too large for this host or endpoint to finish in time",
        "raise batch_timeout_s, or lower prompts × generations{size}",
    ),
}
_BY_LAYER: Final[dict[Layer, Cause]] = {
    Layer.MODEL_SERVING: Cause(
        "the policy endpoint is down, overloaded or restarting", "check the endpoint; lower concurrency{now}"
    ),
    Layer.THROUGHPUT: Cause("something is too slow for its deadline", "lower concurrency{now}, or raise the deadline"),
}


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The size and settings of a batch, to fill into causes."""

    tasks: int
    generations: int
    concurrency: int | None = None
    row_timeout_s: float | None = None

    def fill(self, text: str) -> str:
        now = f", now {self.concurrency}" if self.concurrency is not None else ""
        row = f", now {self.row_timeout_s:g}" if self.row_timeout_s is not None else ""
        size = f" ({self.tasks} × {self.generations} = {self.tasks * self.generations})"
        return text.replace("{size}", size).replace("{now}", now).replace("{row}", row)


def cause_of(kind: str) -> Cause | None:
    """The likely cause of a failure kind, or None."""
    if kind in _CAUSES:
        return _CAUSES[kind]
    known = kind_named(kind)
    return _BY_LAYER.get(known.layer) if known.name == kind else None


def fewer_rollouts(
    missing: Sequence[tuple[RolloutKey, RolloutFailure]], requested: int, context: BatchContext | None, note: str = ""
) -> FewerRolloutsError:
    """The error that says which rollouts are missing, why, and what to do. `missing` lists all of them."""
    kinds = Counter(failure.kind for _, failure in missing)
    scored = requested - len(missing)
    names = [str(key) for key, _ in missing]
    lines = [f"{scored} of {requested} rollouts were scored, {len(missing)} are missing: the batch is incomplete"]
    lines.append(f"  missing: {_join(names)}")
    for kind, count in kinds.most_common():
        evidence = next(failure.message for _, failure in missing if failure.kind == kind)
        lines.append(f"  {count} × {kind}: {evidence or kind_named(kind).hint}")
    if note:
        lines.append(f"  {note}")
    if context is not None:
        lines += _advice(kinds, context)
    failed = {kind: count for kind, count in kinds.items() if kind not in {NEVER_CAME, STOPPED}}
    return FewerRolloutsError("\n".join(lines), requested, scored, failed, names)


def unavailable(error: FewerRolloutsError) -> FewerRolloutsError:
    """The error as a RolloutsUnavailableError, if everything that is missing is so for a reason outside of its task."""
    if not all(map(_is_outage, error.failed)):
        return error
    return RolloutsUnavailableError(str(error), error.requested, error.scored, error.failed, error.missing)


def _is_outage(kind: str) -> bool:
    """Whether it means that something was down or too slow."""
    if kind in {GROUP_DEADLINE, BATCH_DEADLINE}:
        return True
    known = kind_named(kind)
    return known.recovery in {Recovery.TIME, Recovery.OUTAGE} or known.layer in {Layer.INFRA, Layer.MODEL_SERVING}


def _advice(kinds: Counter[str], context: BatchContext) -> list[str]:
    """Each cause once, with what to do; for kinds without a cause here, the failure table's hint."""
    lines: list[str] = []
    for kind, _ in kinds.most_common():
        cause, known = cause_of(kind), kind_named(kind)
        if cause is not None:
            lines += [f"  likely cause: {context.fill(cause.what)}", f"  next: {context.fill(cause.next)}"]
        elif known.name == kind:
            lines.append(f"  next: {known.hint} ({kind})")
    return list(dict.fromkeys(lines))


def _join(names: Sequence[str]) -> str:
    rest = f", … ({len(names)} in total)" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + rest
