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
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Typer carries its own click or uses the installed one, depending on its version; this is that one's base class.
_UsageProblem: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

INTERRUPTED = 130
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

app = typer.Typer(
    name="gymnast",
    help="Collect, score and explain the rollouts of language-model agents in RL environments.",
    no_args_is_help=True,
    rich_markup_mode=None,  # brackets in help texts are brackets
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("collect")(collect.command)
app.command("submit")(submit.command)
app.command("cancel")(cancel.command)
app.command("logs")(logs.command)
app.command("reverify")(reverify.command)
app.command("profile")(profile.command)
app.command("compare")(compare.command)
app.command("curriculum")(curriculum.command)
app.command("report")(report.command)
app.command("serve")(serve.command)
app.command("status")(status.command)
app.command("ctl")(run_status.ctl)
app.command("worker")(worker.command)
app.command("merge")(merge.command)
app.command("bundle")(bundle.command)
app.command("doctor")(doctor.command)
app.command("demo")(demo.command)
app.command("nemo-gym-rollouts", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    nemo_gym_rollouts.command
)
app.command(
    "gym",
    add_help_option=False,  # it has many commands, each with its own
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)(gym.command)
app.add_typer(check.app, name="check")
app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")
app.add_typer(env.app, name="env")
app.add_typer(tokens.app, name="tokens")
app.add_typer(train.app, name="train")


@app.command("version")
def version() -> None:
    """Print the version."""
    print(__version__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    sys.exit(guarded(lambda: app(args=arguments, standalone_mode=False)))


def guarded(run: Callable[[], object], *, user_error_code: int | None = None) -> int:  # noqa: PLR0911 - one per kind of end
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
        say_error(str(error))
        return user_error_code if user_error_code is not None else error.exit_code
    except BrokenPipeError:
        # The reader of our output went away (e.g. `| head`); Python would complain once more while shutting down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # noqa: BLE001 - the outermost boundary: anything here is our bug
        if isinstance(error, OSError) and error.errno in _DISK:  # wherever it happened, it is the user's to mend
            where = f"\n  where: {error.filename}" if error.filename else ""
            say_error(f"cannot write: {error.strerror}{where}\n  next:  free space or fix the folder, then run again")
            return UserError.exit_code
        traceback.print_exc()
        say_error(
            f"this is a bug in Gymnast {__version__}, not in your work\n  next:  please report it with the lines above"
        )
        return 3


def say_error(text: str) -> None:
    """An error for people, on standard error, red where that is a terminal."""
    first, _, rest = text.partition("\n")
    if sys.stderr.isatty():
        first = f"\x1b[31m{first}\x1b[0m"
    print(first + (f"\n{rest}" if rest else ""), file=sys.stderr)


if __name__ == "__main__":
    main()
