"""The `gymnast` command. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

import typer

from gymnast import __version__
from gymnast.cli import (
    bundle,
    cancel,
    check,
    collect,
    compare,
    config,
    curriculum,
    data,
    demo,
    doctor,
    env,
    gym,
    logs,
    merge,
    nemo_gym_rollouts,
    profile,
    report,
    reverify,
    run_status,
    serve,
    status,
    submit,
    tokens,
    train,
    worker,
)
from gymnast.cli.click_classes import CommandGroup, Panel, old_names
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Typer has its own click or uses the installed one, depending on its version: this is the base class of that click.
_UsageProblem: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

INTERRUPTED = 130
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

app = typer.Typer(
    name="gymnast",
    help="Collect, score and explain the rollouts of language-model agents in RL environments.",
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode=None,  # brackets in help texts are brackets
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("demo", rich_help_panel=Panel.RUN, cls=old_names(tasks="tasks_per_level"))(demo.command)
app.command("collect", rich_help_panel=Panel.RUN)(collect.command)
app.command("reverify", rich_help_panel=Panel.RUN)(reverify.command)
app.command("serve", rich_help_panel=Panel.RUN)(serve.command)
app.command("ctl", rich_help_panel=Panel.RUN)(run_status.ctl)

app.command("status", rich_help_panel=Panel.LOOK)(status.command)
app.command("report", rich_help_panel=Panel.LOOK)(report.command)
app.command("profile", rich_help_panel=Panel.LOOK, cls=old_names(partial="allow_partial"))(profile.command)
app.command("compare", rich_help_panel=Panel.LOOK)(compare.command)

app.add_typer(env.app, name="env", rich_help_panel=Panel.PREPARE)
app.add_typer(config.app, name="config", rich_help_panel=Panel.PREPARE)
app.add_typer(data.app, name="data", rich_help_panel=Panel.PREPARE)
app.add_typer(check.app, name="check", rich_help_panel=Panel.PREPARE)

app.command("submit", rich_help_panel=Panel.CLUSTER, cls=old_names(at_once="max_running"))(submit.command)
app.command("worker", rich_help_panel=Panel.CLUSTER)(worker.command)
app.command("logs", rich_help_panel=Panel.CLUSTER)(logs.command)
app.command("cancel", rich_help_panel=Panel.CLUSTER)(cancel.command)
app.command("merge", rich_help_panel=Panel.CLUSTER, cls=old_names(partial="allow_partial"))(merge.command)

app.add_typer(train.app, name="train", rich_help_panel=Panel.TRAIN)
app.add_typer(tokens.app, name="tokens", rich_help_panel=Panel.TRAIN)
app.command(
    "curriculum",
    rich_help_panel=Panel.TRAIN,
    cls=old_names(pass_at="pass_threshold", batch="batch_size", from_="start_pass_rate", to="end_pass_rate"),
)(curriculum.command)

app.command("doctor", rich_help_panel=Panel.DEBUG, cls=old_names(data="input"))(doctor.command)
app.command("bundle", rich_help_panel=Panel.DEBUG, cls=old_names(log="logs"))(bundle.command)

_OPEN_ENDED = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command(
    "gym",
    rich_help_panel=Panel.NEMO_GYM,
    add_help_option=False,  # its commands have their own
    context_settings={**_OPEN_ENDED, "help_option_names": []},
)(gym.command)
app.command("nemo-gym-rollouts", rich_help_panel=Panel.NEMO_GYM, context_settings=_OPEN_ENDED)(
    nemo_gym_rollouts.command
)


@app.command("version", rich_help_panel=Panel.DEBUG)
def version() -> None:
    """Print the version."""
    print(__version__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    sys.exit(run_guarded(lambda: app(args=arguments, standalone_mode=False)))


def run_guarded(run: Callable[[], object], *, user_error_code: int | None = None) -> int:  # noqa: PLR0911 - one per outcome
    """Run a command; turn what it raises into a message and an exit code (see gymnast.errors)."""
    try:
        result = run()
        if result == INTERRUPTED:  # typer turns Ctrl-C into this
            print("interrupted", file=sys.stderr)
        return result if isinstance(result, int) else 0
    except typer.Exit as ended:
        return int(ended.exit_code)
    except _UsageProblem as error:
        error.show()
        return int(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except UserError as error:
        print_error(str(error))
        return user_error_code if user_error_code is not None else error.exit_code
    except BrokenPipeError:
        # The reader of our output closed it (e.g. `| head`); without this, Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # noqa: BLE001 - the outermost boundary: anything here is our bug
        if isinstance(error, OSError) and error.errno in _DISK:  # wherever it happened, the user has to fix it
            where = f"\n  where: {error.filename}" if error.filename else ""
            print_error(f"cannot write: {error.strerror}{where}\n  next:  free space or fix the folder, then run again")
            return UserError.exit_code
        traceback.print_exc()
        print_error(
            f"this is a bug in Gymnast {__version__}, not in your work\n  next:  please report it with the lines above"
        )
        return 3


def print_error(text: str) -> None:
    """Print an error to standard error, in red on a terminal."""
    first, _, rest = text.partition("\n")
    if sys.stderr.isatty():
        first = f"\x1b[31m{first}\x1b[0m"
    print(first + (f"\n{rest}" if rest else ""), file=sys.stderr)


if __name__ == "__main__":
    main()
