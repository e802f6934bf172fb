"""How a run was made, for its headline: models, sampling, environments, repeats, when, and what it used."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from gymnast.report.safe_text import to_one_line
from gymnast.report.scales import format_count, format_short
from gymnast.types.nouns import count_noun

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from gymnast.report.run_view import RunView
    from gymnast.store.manifest import Manifest
    from gymnast.types.usage import ModelUsage

_MAX_NAME: Final = 80
_MAX_LISTED: Final = 8
_SAMPLING_NAMES: Final = {"max_output_tokens": "max output tokens", "top_p": "top-p"}


def describe_setup(run: RunView) -> Iterator[tuple[str, str]]:
    """Names and texts, as far as records and manifest say."""
    setup, manifest = run.setup, run.manifest
    if setup.models:
        yield ("model" if len(setup.models) == 1 else "models"), _list_counts(setup.models)
    if sampling := "; ".join(f"{_SAMPLING_NAMES.get(n, n)} {_list_counts(v)}" for n, v in setup.sampling.items()):
        yield "sampling", sampling
    environments = _environments(manifest) if manifest is not None else []
    agents = [name for name in run.table.agent_names if name]
    if environments:
        yield ("environment" if len(environments) == 1 else "environments"), _list(environments)
    if agents and len(run.headline.agents) < 2:
        yield "agent", _list(agents)
    if repeats := _repeats(run):
        yield "repeats", repeats
    if when := _when(run):
        yield "when", when
    if manifest is not None:
        if path := manifest.source.get("path"):
            yield "tasks from", to_one_line(PurePath(str(path)).name, 200)
        if manifest.spent.calls:
            yield "model calls", _usage(manifest.spent)
        yield "Gymnast", manifest.versions.get("gymnast", "unknown version")


def _list_counts(counts: Counter[str]) -> str:
    """The values; with the number of rollouts of each if there are several."""
    if len(counts) == 1:
        return to_one_line(next(iter(counts)), _MAX_NAME)
    return _list([f"{to_one_line(value, _MAX_NAME)} ({format_count(n)})" for value, n in counts.most_common()])


def _list(names: list[str]) -> str:
    more = len(names) - _MAX_LISTED
    shown = [to_one_line(name, _MAX_NAME + 20) for name in names[:_MAX_LISTED]]
    return ", ".join(shown) + (f" and {format_count(more)} more" if more > 0 else "")


def _environments(manifest: Manifest) -> list[str]:
    """The environments that the run's agents use, by their implementations."""
    instances: dict[str, Any] = {name: value for name, value in manifest.settings.items() if isinstance(value, dict)}
    names = []
    for instance in instances.values():
        folder, _, name = str(instance.get("implementation") or "").rpartition("/")
        if folder.endswith("resources_servers") and name not in names:
            names.append(name)
    return names


def _repeats(run: RunView) -> str | None:
    expected = run.tasks.expected
    if not len(expected):
        return None
    low, high = int(expected.min()), int(expected.max())
    repeats = format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"
    return f"{repeats} per task" if run.has_inputs else f"{repeats} recorded per task"


def _when(run: RunView) -> str | None:
    manifest, setup = run.manifest, run.setup
    if manifest is not None:
        spent_s = sum(
            max(0.0, (part.ended_at or manifest.updated_at) - part.started_at) for part in manifest.invocations
        )
        when = f"{_period(manifest.created_at, manifest.updated_at)}, {manifest.state.value}"
        return when + (f" after {format_duration(spent_s)}" if spent_s else "")
    if setup.started_at is None or setup.ended_at is None:
        return None
    length = format_duration(setup.ended_at - setup.started_at)
    return f"{_period(setup.started_at, setup.ended_at)} (responses, over {length})"


def _period(start: float, end: float) -> str:
    """From when to when; the second date only if it is another day."""
    try:
        first, last = (datetime.fromtimestamp(at, UTC) for at in (start, end))
    except (OverflowError, ValueError, OSError):
        return "at an unknown time"
    if (last - first).total_seconds() < 60:
        return f"{first:%Y-%m-%d %H:%M} UTC"
    return f"{first:%Y-%m-%d %H:%M} to {last:{'%H:%M' if first.date() == last.date() else '%Y-%m-%d %H:%M'}} UTC"


def format_duration(seconds: float) -> str:
    """A duration in one or two units: 45 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(minutes, 60)
    return f"{format_count(hours)} h" + (f" {minutes} min" if minutes else "")


def _usage(spent: ModelUsage) -> str:
    cost = f", cost {spent.cost:.4g}" if spent.cost else ""
    tokens = f"{format_short(spent.input_tokens)} tokens in, {format_short(spent.output_tokens)} out"
    latency = format_duration(spent.latency_ms / 1000 / spent.calls)
    return f"{count_noun(spent.calls, 'call')}, {tokens}, {latency} per call{cost}"
