"""The `gymnast` command. Help, the version and completion need no command, so they import none."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Any

from gymnast import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

INTERRUPTED = 130
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    sys.exit(run_guarded(lambda: _run(words)))


def _run(words: list[str]) -> object:
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    first = words[0] if words else "--help"
    if first in {"-h", "--help"}:
        from gymnast.cli.root_help import root_help

        print(root_help())
        return 0
    if first in {"-V", "--version"}:
        print(f"gymnast {__version__}")
        return 0
    if first == "__complete":
        from gymnast.cli.complete import print_candidates

        print_candidates(words[1:])
        return 0
    if words[-1] in {"-h", "--help"}:
        from gymnast.cli.root_help import stored_help

        text = stored_help(words)
        if text is not None:
            print(text)
            return 0
    from gymnast.cli.commands import build_app

    return build_app(first)(args=words, standalone_mode=False)


def run_guarded(run: Callable[[], object], *, user_error_code: int | None = None) -> int:
    """Run a command; turn what it raises into a message and an exit code (see gymnast.errors)."""
    if sys.stdout.isatty() or sys.stderr.isatty():
        from gymnast.cli.safe_output import protect_terminal

        protect_terminal()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names that the terminal's encoding lacks
    try:
        result = run()
    except KeyboardInterrupt:
        result = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output closed it (e.g. `| head`); without this, Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # noqa: BLE001 - the outermost boundary
        return explain(error, user_error_code)
    if result == INTERRUPTED:  # typer turns Ctrl-C into this
        print("interrupted", file=sys.stderr)
    return result if isinstance(result, int) else 0


def explain(error: Exception, user_error_code: int | None = None) -> int:
    """Print what went wrong; the exit code."""
    from gymnast.errors import UserError

    if isinstance(error, UserError):
        from gymnast.config.secrets import mask_urls

        print_error(mask_urls(str(error)))
        return user_error_code if user_error_code is not None else error.exit_code
    code = _explain_usage(error)
    if code is not None:
        return code
    if isinstance(error, OSError) and error.errno in _DISK:  # wherever it happened, the user has to fix it
        where = f"\n  where: {error.filename}" if error.filename else ""
        print_error(f"cannot write: {error.strerror}{where}\n  next:  free space or fix the folder, then run again")
        return UserError.exit_code
    import traceback

    traceback.print_exception(error)
    print_error(
        f"this is a bug in Gymnast {__version__}, not in your work\n  next:  please report it with the lines above"
    )
    return 3


def _explain_usage(error: Exception) -> int | None:
    """The exit code of what typer raises; None for another error."""
    typer: Any = sys.modules.get("typer")
    if typer is None:
        return None
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, typer.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    # Typer has its own click or uses the installed one, depending on its version: the base class of that click.
    usage_error = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
    if not isinstance(error, usage_error):
        return None
    problem: Any = error
    problem.show()
    return int(problem.exit_code)


def print_error(text: str) -> None:
    """Print an error to standard error, in red on a terminal."""
    first, _, rest = text.partition("\n")
    if sys.stderr.isatty():
        first = f"\x1b[31m{first}\x1b[0m"
    print(first + (f"\n{rest}" if rest else ""), file=sys.stderr)


if __name__ == "__main__":
    main()
