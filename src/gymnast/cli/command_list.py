"""The list of commands: what each is for and where it is defined. Imports nothing, so that listing them is quick."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

RUN: Final = "Run"
LOOK: Final = "Look at results"
PREPARE: Final = "Prepare"
CLUSTER: Final = "Run on a cluster"
TRAIN: Final = "Train"
DEBUG: Final = "Debug"
SETUP: Final = "Set up"
NEMO_GYM: Final = "NeMo Gym"
PANELS: Final = (RUN, LOOK, PREPARE, CLUSTER, TRAIN, DEBUG, SETUP, NEMO_GYM)
"""The headings that commands are listed under, in this order."""

ABOUT: Final = "Collect, score and explain the rollouts of language-model agents in RL environments."


class Command(NamedTuple):
    """A command: its heading, the one line that says what it does, and the module that defines it.

    A module without dots is one of this package. A group has no function: it is the `app` of its module.
    """

    panel: str
    summary: str
    module: str
    function: str | None = "command"
    old_names: dict[str, str] = {}
    settings: dict[str, Any] = {}


_OPEN_ENDED: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
_PARTIAL: Final = {"partial": "allow_partial"}
COMMANDS: Final[dict[str, Command]] = {
    "demo": Command(
        RUN, "Try a full run with the model and tasks that ship.", "demo", old_names={"tasks": "tasks_per_level"}
    ),
    "collect": Command(RUN, "Collect scored rollouts for a dataset.", "collect"),
    "eval": Command(RUN, "Run benchmarks and print pass@1, maj@k and pass@k.", "evaluate"),
    "reverify": Command(RUN, "Score stored rollouts again, without inference.", "reverify"),
    "serve": Command(RUN, "Serve the configured instances over HTTP.", "serve"),
    "ctl": Command(RUN, "Pause, resume, drain or stop a running collection.", "run_status", "ctl"),
    "status": Command(LOOK, "Show the progress of a run, or the health of servers.", "status"),
    "view": Command(LOOK, "Show runs in the browser, live.", "view"),
    "report": Command(LOOK, "Write an HTML report of one or more runs.", "report"),
    "profile": Command(LOOK, "Summarize rewards per task and agent, with pass@k.", "profile", old_names=_PARTIAL),
    "compare": Command(LOOK, "Compare two runs, paired by task.", "compare"),
    "env": Command(PREPARE, "List environments, or create a new one.", "env", None),
    "agents": Command(PREPARE, "List the agents that --agent can name.", "agents"),
    "config": Command(PREPARE, "Show, explain or validate a configuration.", "config", None),
    "data": Command(PREPARE, "Convert, prepare, render, validate or download datasets.", "data", None),
    "check": Command(PREPARE, "Check an environment, rows, tools, an endpoint or a run.", "check", None),
    "submit": Command(
        CLUSTER,
        "Run a collection on many workers (Slurm, Ray or local).",
        "submit",
        old_names={"at_once": "max_running"},
    ),
    "worker": Command(CLUSTER, "Work on the chunks of a submitted run.", "worker"),
    "logs": Command(CLUSTER, "Show the logs of a run's workers, failed ones first.", "logs"),
    "cancel": Command(CLUSTER, "Cancel the workers of a run.", "cancel"),
    "merge": Command(CLUSTER, "Merge the chunks of a submitted run into one.", "merge", old_names=_PARTIAL),
    "export": Command(TRAIN, "Export rollouts as a dataset for other trainers.", "export"),
    "train": Command(TRAIN, "Export training samples from a run.", "train", None),
    "tokens": Command(TRAIN, "Audit or export the tokens of a run.", "tokens", None),
    "curriculum": Command(
        TRAIN,
        "Build training data from profiles, easy to hard.",
        "curriculum",
        old_names={
            "pass_at": "pass_threshold",
            "batch": "batch_size",
            "from_": "start_pass_rate",
            "to": "end_pass_rate",
        },
    ),
    "doctor": Command(
        DEBUG, "Diagnose a run: failed layer, evidence, next step.", "doctor", old_names={"data": "input"}
    ),
    "bundle": Command(DEBUG, "Pack a redacted archive of a run for a bug report.", "bundle", old_names={"log": "logs"}),
    "completion": Command(SETUP, "Print the completion script for your shell.", "completion"),
    "version": Command(SETUP, "Print the version.", "commands", "print_version"),
    "gym": Command(
        NEMO_GYM,
        "Run a command line of NeMo Gym's `gym`.",
        "gymnast.compat.gym_command",  # its commands have their own help
        settings={"add_help_option": False, "context_settings": {**_OPEN_ENDED, "help_option_names": []}},
    ),
    "nemo-gym-rollouts": Command(
        NEMO_GYM,
        "Collect with one job per seed (NeMo Skills' options).",
        "gymnast.compat.rollouts_command",
        settings={"context_settings": _OPEN_ENDED},
    ),
}
