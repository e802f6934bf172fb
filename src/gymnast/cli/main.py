"""The `gymnast` command. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

import typer

from gymnast import __version__
from gymnast.cli.commands import build_app
from gymnast.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Typer has its own click or uses the installed one, depending on its version: this is the base class of that click.
_UsageProblem: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

INTERRUPTED = 130
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    sys.exit(run_guarded(lambda: build_app(words[0] if words else None)(args=words, standalone_mode=False)))


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
