"""Runs the model's code, in a confined process started by the jail's server.

Nothing in this process is trusted. What it writes to its answer channel are values to compare elsewhere; how the
program ended is observed from outside.
"""

from __future__ import annotations

import ast
import builtins
import os
import sys
import types
from typing import Any

from gymnast.sandbox.inside.frames import pack_frame, read_frame, write_all

ANSWERS_FD = 3
"""File descriptor to which a call or a session writes its answers."""
REQUESTS_FD = 4
"""File descriptor from which a session reads code to execute."""


def fresh_main() -> dict[str, Any]:
    """A `__main__` namespace as in `python main.py`, without traces of the server."""
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__="main.py", __builtins__=builtins)
    for name in [name for name in sys.modules if name.split(".")[0] == "gymnast"]:
        del sys.modules[name]
    sys.modules["__main__"] = module
    sys.argv = ["main.py"]
    sys.path[:] = [os.getcwd(), *(path for path in sys.path if path)]  # noqa: PTH109 - pathlib costs an import in every jail
    if "random" in sys.modules:
        sys.modules["random"].seed()  # otherwise every program would draw the same numbers
    return module.__dict__


def run_main(source: bytes) -> int:
    """`python main.py`, in this process."""
    space = fresh_main()
    try:
        exec(compile(source, "main.py", "exec"), space)  # noqa: S102 - what the jail is for
        code = 0
    except BaseException as error:  # noqa: BLE001 - the boundary to the model's code
        code = exit_code(error)
    return shut_down(code)


def run_command(command: list[str], environment: dict[str, str]) -> int:
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - what the jail is for
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
    return 127


def exit_code(error: BaseException) -> int:
    """The exit code that Python would use. Prints the traceback, starting at the model's code."""
    if not isinstance(error, SystemExit):
        trace = error.__traceback__
        shown = trace.tb_next if trace is not None and trace.tb_next is not None else None
        sys.excepthook(type(error), error.with_traceback(shown), shown)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 255
    sys.stderr.write(f"{error.code}\n")
    return 1


def shut_down(code: int) -> int:
    """Do what the interpreter does before it exits, except for tearing itself down."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()  # noqa: SLF001 - as Py_Finalize does
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()  # noqa: SLF001 - as Py_Finalize does
    except BaseException as error:  # noqa: BLE001 - the boundary to the model's code
        code = code or exit_code(error)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001 - closed, replaced, or its reader is gone
            code = code or 120
    return code


def run_calls(source: bytes, function: str) -> int:
    """Run the model's code, then call its function once per request."""
    space = fresh_main()
    space["__name__"] = "solution"  # `if __name__ == "__main__"` belongs to programs, not to functions
    text, code, target = "", 0, None
    try:
        exec(compile(source, "main.py", "exec"), space)  # noqa: S102 - what the jail is for
        target = find_function(space, function)
    except BaseException as error:  # noqa: BLE001 - the boundary to the model's code
        text = describe_error(error)
        code = exit_code(error)
    write_all(ANSWERS_FD, pack_frame({"ready": not text}))
    while (request := read_frame(REQUESTS_FD)) is not None:
        answer = pack_frame({"error": text}) if text else call_function(target, request[0]["arguments"])
        write_all(ANSWERS_FD, answer)
    return shut_down(code)


def find_function(space: dict[str, Any], name: str) -> Any:
    """`f`, `Class.method` (of a new instance), or `method` of a class called Solution."""
    first, _, rest = name.partition(".")
    if first in space:
        value = space[first]
    elif not rest and isinstance(space.get("Solution"), type):
        value, rest = space["Solution"], first
    else:
        raise NameError(f"the code does not define '{name}'")
    for part in rest.split(".") if rest else ():
        value = getattr(value() if isinstance(value, type) else value, part)
    return value


def call_function(target: Any, values: list[Any]) -> bytes:
    try:
        return pack_frame({"value": target(*values)})
    except BaseException as error:  # noqa: BLE001 - the boundary to the model's code, and values that are not JSON
        return pack_frame({"error": describe_error(error)})


def describe_error(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:2000]
    except BaseException:  # noqa: BLE001 - an exception whose text raises
        return type(error).__name__


def run_interpreter() -> int:
    """Execute requests until the stream ends, keeping variables."""
    space = fresh_main()
    while True:
        request = read_frame(REQUESTS_FD)
        if request is None:
            return shut_down(0)
        code, value = execute(request[1], space)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # noqa: BLE001 - closed or replaced by the model's code
                code = code or 120
        write_all(ANSWERS_FD, pack_frame({"code": code, "shown": value is not None}, value or b""))


def execute(source: bytes, space: dict[str, Any]) -> tuple[int, bytes | None]:
    """The exit code, and the repr of the last line's value if it has one."""
    try:
        tree = ast.parse(source, "main.py")
        last = tree.body[-1] if tree.body else None
        if not isinstance(last, ast.Expr):
            exec(compile(tree, "main.py", "exec"), space)  # noqa: S102 - what the jail is for
            return 0, None
        exec(compile(ast.Module(tree.body[:-1], []), "main.py", "exec"), space)  # noqa: S102 - as above
        value = eval(compile(ast.Expression(last.value), "main.py", "eval"), space)  # noqa: S307 - as above
        return 0, None if value is None else repr(value).encode(errors="backslashreplace")
    except BaseException as error:  # noqa: BLE001 - the boundary to the model's code
        return exit_code(error), None
