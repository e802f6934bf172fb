"""Why rollouts are missing, most likely, and what to do: a table over kinds of failures. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gymnast.train.errors import FewerRolloutsError
from gymnast.types.failure import Layer, kind_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gymnast.train.samples import RolloutFailure
    from gymnast.types.task import RolloutKey

GROUP_DEADLINE: Final = "group_deadline"
BATCH_DEADLINE: Final = "batch_deadline"
NEVER_CAME: Final = "never_came_back"
STOPPED: Final = "stopped"
_MOST_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class Cause:
    """What is behind a kind of failure, and the knob that helps."""

    what: str
    next: str


_DIED: Final = Cause(
    "an agent or server process crashed or was killed, most often by the kernel for want of memory, because prompts × "
    "generations{size} is too much at once for this host",
    "lower concurrency (rollouts in flight{now}), or prompts × generations; gymnast doctor and the instance's log say "
    "what it died of",
)
_CAUSES: Final[dict[str, Cause]] = {
    "out_of_memory": _DIED,
    "instance_died": _DIED,
    "worker_died": _DIED,
    "agent_unreachable": _DIED,
    "environment_unreachable": _DIED,
    NEVER_CAME: Cause(
        "the run ended before they were done: what they need was out of reach for too long, or its budget was used up",
        "see why it ended above; if a process died, lower concurrency{now}; if the endpoint restarts slowly, raise "
        "give_up_after_s",
    ),
    "rollout_timeout": Cause(
        "single rollouts take longer than they may",
        "raise row_timeout_s{row}, bound the agent's max_steps, or lower concurrency{now}",
    ),
    GROUP_DEADLINE: Cause(
        "some rollouts of a group take far longer than their siblings", "raise group_timeout_s, or bound max_steps"
    ),
    BATCH_DEADLINE: Cause(
        "the batch is more than this host or the endpoint can do in the time it has",
        "raise batch_timeout_s, or lower prompts × generations{size}",
    ),
}
_BY_LAYER: Final[dict[Layer, Cause]] = {
    Layer.MODEL_SERVING: Cause(
        "the policy endpoint is down, overloaded or restarting", "check the endpoint; lower concurrency{now}"
    ),
    Layer.THROUGHPUT: Cause("something is too slow for its deadline", "lower concurrency{now}, or raise the deadline"),
    Layer.INFRA: _DIED,
}


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What was asked for, to be said beside a cause."""

    tasks: int
    generations: int
    concurrency: int | None = None
    row_timeout_s: float | None = None

    def filled(self, text: str) -> str:
        now = f", now {self.concurrency}" if self.concurrency is not None else ""
        row = f", now {self.row_timeout_s:g}" if self.row_timeout_s is not None else ""
        size = f" ({self.tasks} × {self.generations} = {self.tasks * self.generations})"
        return text.replace("{size}", size).replace("{now}", now).replace("{row}", row)


def cause_of(kind: str) -> Cause | None:
    """The likely cause behind a kind of failure."""
    if kind in _CAUSES:
        return _CAUSES[kind]
    known = kind_named(kind)
    return _BY_LAYER.get(known.layer) if known.name == kind else None


def fewer_rollouts(
    missing: Sequence[tuple[RolloutKey, RolloutFailure]], requested: int, about: Circumstances | None, note: str = ""
) -> FewerRolloutsError:
    """The error that says which rollouts are missing, why, and what to do. `missing` has all of them."""
    kinds = Counter(failure.kind for _, failure in missing)
    scored = requested - len(missing)
    names = [str(key) for key, _ in missing]
    lines = [f"{scored} of {requested} rollouts were scored, {len(missing)} are missing: there is no batch"]
    lines.append(f"  missing: {_listed(names)}")
    for kind, count in kinds.most_common():
        evidence = next(failure.message for _, failure in missing if failure.kind == kind)
        lines.append(f"  {count} × {kind}: {evidence or kind_named(kind).hint}")
    if note:
        lines.append(f"  {note}")
    if about is not None:
        lines += _advice(kinds, about)
    failed = {kind: count for kind, count in kinds.items() if kind not in {NEVER_CAME, STOPPED}}
    return FewerRolloutsError("\n".join(lines), requested, scored, failed, names)


def _advice(kinds: Counter[str], about: Circumstances) -> list[str]:
    """Each cause once with what to do; for kinds that name their cause themselves, what the table of failures says."""
    lines: list[str] = []
    for kind, _ in kinds.most_common():
        cause, known = cause_of(kind), kind_named(kind)
        if cause is not None:
            lines += [f"  likely cause: {about.filled(cause.what)}", f"  next: {about.filled(cause.next)}"]
        elif known.name == kind:
            lines.append(f"  next: {known.hint} ({kind})")
    return list(dict.fromkeys(lines))


def _listed(names: Sequence[str]) -> str:
    rest = f", … ({len(names)} in all)" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + rest
