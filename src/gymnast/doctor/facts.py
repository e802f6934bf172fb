"""Facts as plain values: the run's files, its logs, its job, what is running now. Rules see nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gymnast.store.manifest import RunState

if TYPE_CHECKING:
    from pathlib import Path

    from gymnast.doctor.schema_diff import FieldDiff
    from gymnast.store.manifest import Manifest
    from gymnast.types.failure import FailureKind
    from gymnast.wire.inference_metrics import Activity


@dataclass(frozen=True, slots=True)
class Quote:
    """A line of a file."""

    file: str
    line: int
    text: str


# --- the run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailureExample:
    """One failed attempt, from its record."""

    line: int
    key: str
    message: str
    body: str
    status: int | None
    instance: str
    endpoint: str
    chain: tuple[str, ...]
    stage: str
    certainty: str = ""
    """Of an endpoint's error: what its cause rests on."""


@dataclass(slots=True)
class FailureGroup:
    """Failed attempts of one kind and flavor."""

    kind: FailureKind
    flavor: str
    attempts: int = 0
    lost: int = 0
    """Unscored rollouts whose last attempt is in this group."""
    examples: list[FailureExample] = field(default_factory=list)
    bodies: Counter[str] = field(default_factory=Counter)
    """Counts of messages without numbers, for the most common ones."""
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
    has_tools: bool = False
    """True if any row has tools."""


@dataclass(slots=True)
class RecordFacts:
    """The scored records."""

    lines: int = 0
    scored: int = 0
    """Distinct rollouts."""
    duplicates: int = 0
    duplicate_keys: list[str] = field(default_factory=list)
    unplanned: int = 0
    missing_keys: list[str] = field(default_factory=list)
    """The first planned rollouts without reward and failure."""
    missing: int = 0
    damaged: list[tuple[int, str]] = field(default_factory=list)
    is_torn: bool = False
    """The last line is incomplete."""
    rewards: dict[str, RewardRange] = field(default_factory=dict)
    """By agent."""
    without_usage: int = 0
    overflowed: int = 0
    """Without any output because the context was full."""
    truncated: int = 0
    """Truncated at the output limit."""
    empty: int = 0
    """Complete responses without text and tool call."""
    empty_keys: list[str] = field(default_factory=list)
    bad_arguments: int = 0
    """Rollouts with a tool call whose arguments are not JSON."""
    unowned_tools: Counter[str] = field(default_factory=Counter)
    """Offered tools that no environment has, by number of rollouts that called them."""
    repaired: int = 0
    """Damaged lines that a resume moved aside."""
    modified_at: float = 0.0


class Verdict(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_MADE = "not made"


@dataclass(frozen=True, slots=True)
class RewardCheck:
    """One question about rollouts with equal rewards, and its answer."""

    id: str
    """The finding that it leads to if it failed."""
    verdict: Verdict
    detail: str
    keys: tuple[str, ...] = ()
    is_direct: bool = True
    """False if other explanations are possible."""


@dataclass(frozen=True, slots=True)
class RewardStudy:
    """Why all rollouts of an agent have the same reward."""

    agent: str
    environment: str
    reward: float
    scored: int
    is_whole_run: bool
    checks: tuple[RewardCheck, ...]


@dataclass(slots=True)
class RewardRange:
    """The rewards of an agent's rollouts."""

    low: float
    high: float
    count: int = 0
    tasks: set[int] = field(default_factory=set)
    """Some of its tasks."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The file that the plan was made from, in its current state."""

    path: str
    exists: bool
    changed: bool | None = None
    """None if unknown."""
    modified_at: float = 0.0
    detail: str = ""
    rows: int = 0
    distinct: int = 0
    """Rows that differ in more than their place."""


@dataclass(frozen=True, slots=True)
class RepeatFacts:
    """Repeats of tasks, in a sample of the records."""

    tasks: int
    """With several repeats."""
    identical: int
    """Of them, those whose repeats all have the same text."""
    repeats: int
    is_greedy: bool
    """The requests ask for a temperature of 0."""
    example: str = ""


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
    """Currently, on the file system of the output."""
    first_failure_at: float | None = None
    last_failure_at: float | None = None
    schema: list[FieldDiff] = field(default_factory=list)
    """The first rejected row, field by field."""
    studies: list[RewardStudy] = field(default_factory=list)
    """Of agents whose rewards are all the same."""
    repeats: RepeatFacts | None = None
    is_chunked: bool = False
    """Planned for many workers: the planning process has ended, so the lock may be free."""

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
        """Requested rollouts that are not scored."""
        return max(0, self.requested - self.scored)

    @property
    def is_active(self) -> bool:
        """A process works on it, or workers may still start: unscored rollouts are owed, not lost."""
        is_open = self.manifest is not None and self.manifest.state is RunState.RUNNING
        return self.is_running or (self.is_chunked and is_open)

    @property
    def unexplained(self) -> int:
        """Lost rollouts without a failure record."""
        return max(0, self.lost - sum(group.lost for group in self.failures))

    @property
    def note(self) -> str:
        return (self.manifest.note or "") if self.manifest is not None else ""


# --- logs, job, live -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What followed the last occurrence of an error in its log."""

    work: int
    """Lines that report progress."""
    is_recovered: bool
    """A line says so, or the program started (again)."""
    progress: int = 0
    """Lines of any kind that report normal operation."""


@dataclass(slots=True)
class Hit:
    """Lines with one signature."""

    count: int
    first: Quote
    last: Quote
    is_after_shutdown: bool = False
    is_warning: bool = False
    """Every such line calls itself a warning."""
    position: int = 0
    """Where the first line is among all lines that were read."""
    at: float | None = None
    """The time in the first line, in seconds since the start of the year."""
    before: str = ""
    """The lines before the first one."""
    outcome: Outcome | None = None
    progress_between: int = 0
    """Lines of normal operation after its first occurrence."""


@dataclass(slots=True)
class LogEvent:
    """Lines that report a failure that no signature knows."""

    first: Quote
    is_certain: bool
    """By its level or form, not only by its words."""
    position: int
    at: float | None = None
    count: int = 1
    is_warning: bool = False
    last_line: int = 0
    is_announcement: bool = False
    """A traceback follows."""
    before: str = ""
    outcome: Outcome | None = None
    progress_between: int = 0
    """Lines of normal operation after its first occurrence."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The last line of a log file."""

    last: Quote | None
    """None if the file is empty."""
    is_normal: bool
    is_warning: bool = False
    tail: tuple[str, ...] = ()
    """The last lines."""
    is_done: bool = False
    """One of them says that the work is done."""
    is_cut: bool = False
    """It breaks off in the middle of a line."""
    has_failed_items: bool = False
    """It ends with a count of items of which many failed."""
    not_finite: Quote | None = None
    """The last report of a training, if its loss or gradients are NaN or infinite from there on."""
    stall: Quote | None = None
    """The first of its last lines, if they only say that a program waits for the same thing, for minutes."""


@dataclass(slots=True)
class LoggedException:
    """Tracebacks that end with the same exception."""

    type: str
    message: str
    end: Quote
    frame: str
    """Where it was raised."""
    count: int = 1
    is_noise: bool = False
    """Cancellations, and whatever follows a shutdown request."""
    own_frame: str = ""
    """The innermost frame outside installed packages."""
    position: int = 0
    at: float | None = None
    """When it was logged."""
    source: str = ""
    """The line of code that raised it."""
    last_line: int = 0
    packages: tuple[str, ...] = ()
    """The installed packages through which the call went that raised it."""
    inner_line: int = 0
    """The line of the exception that led to it, if there is one."""
    details: tuple[str, ...] = ()
    """The further lines of its message."""
    ends_program: bool = False
    """It went through all of a program, to its first line, and no process is named: nothing caught it."""
    is_logged_low: bool = False
    """A logger wrote it below the level of an error: the program caught it."""
    outcome: Outcome | None = None
    progress_between: int = 0
    """Lines of normal operation after its first occurrence."""


@dataclass(frozen=True, slots=True)
class LoggedUserError:
    """One of our own error messages, with its where and next."""

    what: Quote
    where: str
    next: str


@dataclass(slots=True)
class ComponentDeath:
    """A component of a job that ended before the work, as reported by its sidecar or the job script."""

    component: str
    message: Quote
    log: str = ""
    """Its own log."""
    last_output: Quote | None = None


@dataclass(slots=True)
class AccessLog:
    file: str
    statuses: Counter[int] = field(default_factory=Counter)
    first: dict[int, Quote] = field(default_factory=dict)
    """The first line with each status of an error."""
    before: dict[int, int] = field(default_factory=dict)
    """The requests before it."""
    ok_at_end: int = 0
    """The requests since the last error."""

    @property
    def requests(self) -> int:
        return self.statuses.total()


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
    events: list[LogEvent] = field(default_factory=list)
    ends: list[LogEnd] = field(default_factory=list)
    access: list[AccessLog] = field(default_factory=list)
    failure_lines: int = 0
    """Lines that report a failure and are not shutdown noise."""
    model_servers: set[str] = field(default_factory=set)
    """The files that are logs of a model server, by their content."""
    trainers: set[str] = field(default_factory=set)
    """The files that are logs of a training program, by their content."""
    overcome: tuple[str, ...] = ()
    """Errors that their programs got over, as `file:line message`."""

    @property
    def real_exceptions(self) -> list[LoggedException]:
        return [exception for exception in self.exceptions if not exception.is_noise]


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the scheduler reports about a job."""

    id: str
    state: str
    reason: str
    exit_code: str
    fields: dict[str, str]
    source: str
    """The command that reported it."""
    log_files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """The result of a request to a server or endpoint."""

    name: str
    url: str
    ok: bool
    detail: str
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A process of a running collection on this host, as the kernel reports it."""

    pid: int
    state: str
    """The letter of /proc/PID/stat: R runs, S sleeps, D waits for a device, T is stopped, t is traced."""
    command: str
    is_collector: bool = False


@dataclass(frozen=True, slots=True)
class EndpointActivity:
    """An endpoint that rollouts wait for: whether it answers, and two looks at its metrics, if it has any."""

    url: str
    answers: bool
    detail: str = ""
    """Why it does not answer."""
    before: Activity | None = None
    after: Activity | None = None
    seconds: float = 0.0
    """Between the two looks."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts."""

    target: str
    now: float
    run: RunFacts | None = None
    logs: LogFacts = field(default_factory=LogFacts)
    job: JobFacts | None = None
    job_problem: str | None = None
    kernel: str | None = None
    """The kernel's log line about killing the collecting process."""
    probes: tuple[ProbeFacts, ...] = ()
    servers: tuple[ProbeFacts, ...] = ()
    """Instances of a running `serve`."""
    live: dict[str, Any] | None = None
    """The status of a running collection."""
    stacks: tuple[dict[str, Any], ...] = ()
    requests: tuple[dict[str, Any], ...] = ()
    """Open requests of a `serve`, the longest wait first."""
    stuck_after_s: float | None = None
    """How long a running attempt may wait before it counts as stuck, if the user set it."""
    processes: tuple[ProcessFacts, ...] = ()
    """The collector and what it started, if it runs on this host."""
    activity: tuple[EndpointActivity, ...] = ()
    """Endpoints that rollouts have waited for a while."""
    unresponsive: str = ""
    """Why the running collector could not be queried."""

    @property
    def lost(self) -> int:
        return self.run.lost if self.run is not None else 0

    @property
    def unexplained(self) -> int:
        return self.run.unexplained if self.run is not None else 0

    @property
    def is_complete(self) -> bool:
        """True if every rollout is scored, so that nothing in the logs did harm."""
        return self.run is not None and self.run.requested > 0 and self.run.lost == 0

    def groups(self, *kinds: FailureKind) -> list[FailureGroup]:
        """The failure groups of these kinds."""
        return [group for group in (self.run.failures if self.run is not None else ()) if group.kind in kinds]

    def hit(self, *signatures: str) -> Hit | None:
        """The first of these signatures found in the logs."""
        return next((self.logs.hits[name] for name in signatures if name in self.logs.hits), None)
