"""What was read, as plain values: the run's files, its logs, its job, what is running now. Rules see nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gymnast.store.manifest import RunState

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.doctor.schema_diff import FieldDifference
    from gymnast.store.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Quote:
    """A line of a file."""

    file: str
    line: int
    text: str


# --- the run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailureExample:
    """One failed attempt, as its record tells it."""

    line: int
    key: str
    message: str
    body: str
    status: int | None
    instance: str
    endpoint: str
    chain: tuple[str, ...]
    stage: str


@dataclass(slots=True)
class FailureGroup:
    """Failed attempts of one kind and flavor."""

    kind: str
    flavor: str
    attempts: int = 0
    lost: int = 0
    """Rollouts that are not scored and whose last attempt ended so."""
    examples: list[FailureExample] = field(default_factory=list)
    bodies: Counter[str] = field(default_factory=Counter)
    """What was said, numbers left out, by how often; the most common ones only."""
    instances: Counter[str] = field(default_factory=Counter)

    @property
    def first(self) -> FailureExample:
        return self.examples[0]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(example.key for example in self.examples))


@dataclass(slots=True)
class PlanFacts:
    """The materialized inputs."""

    rows: int = 0
    tasks: int = 0
    keyless: int = 0
    crc32: int = 0
    modified_at: float = 0.0
    tools: bool = False
    """Whether any row offers tools."""


@dataclass(slots=True)
class RecordFacts:
    """The scored records."""

    lines: int = 0
    scored: int = 0
    """Different rollouts."""
    duplicates: int = 0
    duplicate_keys: list[str] = field(default_factory=list)
    unplanned: int = 0
    missing_keys: list[str] = field(default_factory=list)
    """The first planned rollouts that have neither a reward nor a failure."""
    missing: int = 0
    damaged: list[tuple[int, str]] = field(default_factory=list)
    is_torn: bool = False
    """The last line has no end."""
    reward_min: float = 0.0
    reward_max: float = 0.0
    without_usage: int = 0
    overflowed: int = 0
    """Ended without a word because the context was full."""
    truncated: int = 0
    """Cut off at the output limit."""
    empty: int = 0
    """Whole answers without a word and without a tool call."""
    empty_keys: list[str] = field(default_factory=list)
    unextracted: int = 0
    """Those in whose answer the verifier found no answer, where it says so."""
    bad_arguments: int = 0
    """Rollouts in which arguments of a tool call were no JSON."""
    unowned_tools: Counter[str] = field(default_factory=Counter)
    """Tools that were offered to the model and that nobody has, by rollouts that called them."""
    repaired: int = 0
    """Damaged lines that a resume moved aside."""
    modified_at: float = 0.0


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The file that the plan was made from, as it is now."""

    path: str
    exists: bool
    changed: bool | None = None
    """None where that cannot be told."""
    modified_at: float = 0.0
    detail: str = ""


@dataclass(slots=True)
class RunFacts:
    """A run's files."""

    output: Path
    manifest: Manifest | None
    manifest_problem: str | None
    plan: PlanFacts | None
    records: RecordFacts | None
    failures: list[FailureGroup]
    failure_lines: int
    profile_rows: int | None
    source: SourceFacts | None
    is_running: bool
    free_bytes: int | None = None
    """On the file system of the output, now."""
    first_failure_at: float | None = None
    last_failure_at: float | None = None
    schema: list[FieldDifference] = field(default_factory=list)
    """The first refused row, field by field."""
    is_chunked: bool = False
    """Planned for many workers: whoever planned it has ended, and nobody need hold its lock."""

    @property
    def requested(self) -> int:
        if self.manifest is not None:
            return self.manifest.counts.requested
        return self.plan.rows if self.plan is not None else 0

    @property
    def scored(self) -> int:
        return self.records.scored if self.records is not None else 0

    @property
    def lost(self) -> int:
        """Rollouts that were asked for and are not scored."""
        return max(0, self.requested - self.scored)

    @property
    def is_going_on(self) -> bool:
        """Somebody works on it, or workers may still come: what is not scored is owed, not lost."""
        is_open = self.manifest is not None and self.manifest.state is RunState.RUNNING
        return self.is_running or (self.is_chunked and is_open)

    @property
    def unexplained(self) -> int:
        """Lost rollouts without a failure record of their own."""
        return max(0, self.lost - sum(group.lost for group in self.failures))

    @property
    def note(self) -> str:
        return (self.manifest.note or "") if self.manifest is not None else ""


# --- logs, job, live -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Hit:
    """Lines with one signature."""

    count: int
    first: Quote
    last: Quote
    is_after_shutdown: bool = False


@dataclass(slots=True)
class LoggedException:
    """Tracebacks that end alike."""

    type: str
    message: str
    end: Quote
    frame: str
    count: int = 1
    is_noise: bool = False
    """Cancellations, and whatever came after the program was told to end."""


@dataclass(frozen=True, slots=True)
class LoggedUserError:
    """A message of ours with its where and next."""

    what: Quote
    where: str
    next: str


@dataclass(slots=True)
class ComponentDeath:
    """A component of a job that ended before the work did, as its companion or the job's script says."""

    component: str
    said: Quote
    log: str = ""
    """Its own log."""
    last_words: Quote | None = None


@dataclass(slots=True)
class LogFacts:
    """All log files together."""

    files: list[str] = field(default_factory=list)
    size_bytes: int = 0
    lines: int = 0
    hits: dict[str, Hit] = field(default_factory=dict)
    exceptions: list[LoggedException] = field(default_factory=list)
    user_errors: list[LoggedUserError] = field(default_factory=list)
    deaths: list[ComponentDeath] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def real_exceptions(self) -> list[LoggedException]:
        return [found for found in self.exceptions if not found.is_noise]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the scheduler says of a job."""

    id: str
    state: str
    reason: str
    exit_code: str
    fields: dict[str, str]
    source: str
    """The command that told."""
    log_files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """A page that was asked for."""

    name: str
    url: str
    ok: bool
    said: str
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was read."""

    subject: str
    now: float
    run: RunFacts | None = None
    logs: LogFacts = field(default_factory=LogFacts)
    job: JobFacts | None = None
    job_problem: str | None = None
    kernel: str | None = None
    """The kernel's line about killing the collecting process."""
    probes: tuple[ProbeFacts, ...] = ()
    servers: tuple[ProbeFacts, ...] = ()
    """Instances of a serve."""
    live: dict[str, Any] | None = None
    """What a running collection says of itself."""
    stacks: tuple[dict[str, Any], ...] = ()
    requests: tuple[dict[str, Any], ...] = ()
    """What a serve has not answered yet, the longest wait first."""
    stuck_after_s: float = 60.0
    """How long a wait of a running attempt may be."""

    @property
    def lost(self) -> int:
        return self.run.lost if self.run is not None else 0

    @property
    def unexplained(self) -> int:
        return self.run.unexplained if self.run is not None else 0

    @property
    def is_whole(self) -> bool:
        """A run of which every rollout is scored: whatever its logs say did no harm."""
        return self.run is not None and self.run.requested > 0 and self.run.lost == 0

    def groups(self, *kinds: str) -> list[FailureGroup]:
        """Failed attempts of these kinds."""
        return [group for group in (self.run.failures if self.run is not None else ()) if group.kind in kinds]

    def hit(self, *signatures: str) -> Hit | None:
        """The first of these signatures that the logs show."""
        return next((self.logs.hits[name] for name in signatures if name in self.logs.hits), None)
