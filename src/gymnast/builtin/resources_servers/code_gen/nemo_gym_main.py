"""Runs inside the sandbox, in a session: executes one program on its tests the way NeMo Gym's code_gen does, all in one
process.

A program that reads standard input becomes the body of a function and gets a stand-in for `sys.stdin`; a function is
called with its arguments. Expected outputs stay outside, and so does the limit that a program cannot lift: that of the
session's step. Standard library only, as in `sandbox_main.py`.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import traceback
import types
from decimal import Decimal
from fractions import Fraction
from io import StringIO
from typing import Any

_FLAT = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json"
    " builtins typing"
)
_WHOLE = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json"
)
_PREAMBLE = "".join(
    [
        *(f"from {name} import *\n" for name in _FLAT.split()),
        *(f"import {name}\n" for name in _WHOLE.split()),
        "sys.setrecursionlimit(50000)\n",
    ]
)
"""What every program starts with. Its number of lines shows in the messages of syntax errors."""
_MODULE = "tmp_sol"
_FUNCTION = "wrapped_function"
_DISABLED_OS = (
    "kill system putenv remove removedirs rmdir fchdir setuid fork forkpty killpg rename renames truncate replace"
    " unlink fchmod fchown chmod chown chroot lchflags lchmod lchown getcwd chdir"
)
_DISABLED_SHUTIL = "rmtree move chown"
_IMPORTED_FIRST = (("numpy", "numpy"), ("multiprocessing", "multiprocessing"), ("concurrent", "multiprocessing"))
"""Modules that cannot be imported without what is disabled, and in which programs they are imported before that."""
_DISABLED_MODULES = "ipdb joblib resource psutil tkinter"
_MAX_DIGITS = 50_000
_STACK_BYTES = 4 << 30
_MAX_SHOWN = 300
_MAX_TRACEBACK = 4000
_PLAIN_INT = 1 << 53


class TimeoutException(Exception):  # noqa: N818 - its name is part of the reply
    """The program's time is over. A program may catch it, as it may there."""


class _Reports:
    """Lines of JSON on what was standard output; the program gets none of the standard streams."""

    def __init__(self) -> None:
        self._descriptor = os.dup(1)
        self._write = os.write
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115

    def send(self, how: str, **fields: Any) -> None:
        view = memoryview(json.dumps({"how": how, **fields}).encode() + b"\n")
        while view:
            view = view[self._write(self._descriptor, view) :]


class _Stdin:
    """`sys.stdin` as programs there see it: `read` always returns everything, `readlines` no line feeds."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._file = StringIO(text)
        self.buffer = _StdinBuffer(text)

    def read(self, *_: Any) -> str:
        return self._text

    def readline(self, *arguments: Any) -> str:
        return self._file.readline(*arguments)

    def readlines(self, *_: Any) -> list[str]:
        return self._text.split("\n")

    def __iter__(self) -> _Stdin:
        return self

    def __next__(self) -> str:
        return next(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _StdinBuffer:
    def __init__(self, text: str) -> None:
        self._data = text.encode()

    def read(self, *_: Any) -> bytes:
        return self._data

    def readline(self, *_: Any) -> bytes:
        return self._data.split(b"\n")[0] + b"\n"


def _feed_real_stdin(stdin: Any, text: str) -> None:
    """What `from sys import stdin` gives a program: the same methods, but a line has no line feed."""
    lines = iter(text.split("\n"))
    stdin.read = lambda *_: text
    stdin.readline = lambda *_: next(lines)
    stdin.readlines = lambda *_: text.split("\n")


class _State:
    """What the session keeps from one test to the next."""

    job: dict[str, Any]
    reports: _Reports
    function: Any


def start(job: str) -> None:
    """Load the program, and report whether that worked."""
    _State.job = json.loads(job)
    _State.reports = reports = _Reports()
    try:
        _prepare(_State.job["source"])
        _State.function = _find_function(_State.job)
        reports.send("loaded")
    except Exception as error:  # noqa: BLE001 - the program may raise anything
        signal.alarm(0)
        reports.send("broken", error=str(error))


def run_test(given: str) -> None:
    """Run the program on one test, and report."""
    run = _run_stdin if _State.job["function"] is None else _run_call
    try:
        run(json.loads(given), _State.job, _State.reports)
    except Exception as error:  # noqa: BLE001 - as above
        _send_failure(error, _State.reports)
    finally:
        signal.alarm(0)


def _find_function(job: dict[str, Any]) -> Any:
    source, timeout_s = job["source"], job["timeout_s"]
    if job["function"] is None:
        return _lookup(_load(_as_function(_without_main_guard(source)), timeout_s), _FUNCTION)
    return _lookup(_load(f"{_PREAMBLE}\n\n{source}", timeout_s), job["function"])


def _prepare(source: str) -> None:
    for word, module in _IMPORTED_FIRST:
        if word in source:
            with contextlib.suppress(ImportError):
                __import__(module)
    signal.signal(signal.SIGALRM, _on_alarm)
    sys.set_int_max_str_digits(_MAX_DIGITS)
    _raise_stack_limit()
    disabled = [(os, _DISABLED_OS), (shutil, _DISABLED_SHUTIL), (subprocess, "Popen"), (builtins, "quit help")]
    for owner, names in disabled:
        for name in names.split():
            setattr(owner, name, None)
    if not hasattr(builtins, "exit"):
        builtins.exit = sys.exit  # type: ignore[assignment]
    builtins.print = _make_flushing_print()
    for name in _DISABLED_MODULES.split():
        sys.modules[name] = None  # type: ignore[assignment]


def _make_flushing_print() -> Any:
    """NeMo Gym's `print` flushes after each call: a program's own output needs the method, and errors have its name."""
    write = print

    def flushing_print(*values: Any, **options: Any) -> None:
        options["flush"] = True
        write(*values, **options)

    flushing_print.__module__ = "nemo_gym"
    flushing_print.__name__ = flushing_print.__qualname__ = "print_always_flushes"
    return flushing_print


def _raise_stack_limit() -> None:
    import resource  # noqa: PLC0415 - programs may not import it later

    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    limit = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(_STACK_BYTES, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_STACK, (limit, hard))


def _on_alarm(*_: object) -> None:
    raise TimeoutException


def _run_stdin(text: str, job: dict[str, Any], reports: _Reports) -> None:
    stdin, stdout = sys.stdin, sys.stdout
    captured = StringIO()
    signal.alarm(job["timeout_s"])
    try:
        _feed_real_stdin(stdin, text)
        sys.stdin, sys.stdout = _Stdin(text), captured
        started = time.time()
        with contextlib.suppress(SystemExit):
            _State.function()
        seconds = time.time() - started
        signal.alarm(0)
    finally:
        signal.alarm(0)
        sys.stdin, sys.stdout = stdin, stdout
    reports.send("output", stdout=captured.getvalue()[: job["cap"]], seconds=seconds)


def _run_call(given: Any, job: dict[str, Any], reports: _Reports) -> None:
    arguments = _arguments(given)
    signal.alarm(job["timeout_s"])
    started = time.time()
    value = _State.function(*arguments)
    seconds = time.time() - started
    signal.alarm(0)
    value = list(value) if isinstance(value, tuple) else value
    reports.send("value", value=_encode(value), shown=_show(value), lost=_is_lost(value), seconds=seconds)


def _send_failure(error: Exception, reports: _Reports) -> None:
    signal.alarm(0)
    text = repr(error)
    if "timeoutexception" in text.lower():
        reports.send("timeout", error=text)
    else:
        reports.send("failed", error=text, traceback=traceback.format_exc()[-_MAX_TRACEBACK:])


def _without_main_guard(source: str) -> str:
    """The program with the body of a final `if __name__ == '__main__':` in its place."""
    with contextlib.suppress(Exception):
        tree = ast.parse(source)
        last = tree.body[-1]
        if isinstance(last, ast.If) and ast.unparse(last.test).strip() == "__name__ == '__main__'":
            return f"{_unparse(tree.body[:-1])}\n{_unparse(last.body)}"
    return source


def _as_function(source: str) -> str:
    """The program as a module with one function, except for its imports. Source that cannot be parsed stays."""
    try:
        imports: list[ast.stmt] = []
        body: list[ast.stmt] = []
        for statement in ast.parse(source).body:
            (imports if isinstance(statement, (ast.Import, ast.ImportFrom)) else body).append(statement)
        no_arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        function = ast.FunctionDef(name=_FUNCTION, args=no_arguments, body=body, decorator_list=[], lineno=-1)
        return f"{_PREAMBLE}\n{_unparse(imports)}\n{_unparse(function)}"
    except Exception:  # noqa: BLE001 - compiling it says what is wrong
        return source


def _unparse(code: Any) -> str:
    return ast.unparse(code)


def _load(source: str, timeout_s: int) -> Any:
    signal.alarm(timeout_s)
    try:
        module = types.ModuleType(_MODULE, "")
        exec(source, module.__dict__)  # noqa: S102 - in the sandbox
        program = module.Solution() if "class Solution" in source else module
        if program is None:
            raise AssertionError
        return program
    finally:
        signal.alarm(0)


def _lookup(owner: Any, name: str) -> Any:
    """The function. One that is None, or raises when it is looked up, is missing."""
    function = None
    with contextlib.suppress(Exception):
        function = getattr(owner, name)
    if function is None:
        raise TypeError("cannot unpack non-iterable NoneType object")
    return function


def _arguments(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [json.loads(line) for line in given.split("\n")]
    return list(given) if isinstance(given, list) else [given]


def _is_lost(value: Any) -> bool:
    """Whether a text of a class of the program's own, which the testing process there cannot send to its parent."""
    if type(value) is str or not isinstance(value, str) or len(value) > _MAX_SHOWN:
        return False
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - as above
        return True
    return False


def _show(value: Any) -> str:
    try:
        text = str(value)
    except Exception as error:  # noqa: BLE001 - as above
        text = repr(error)
    half = _MAX_SHOWN // 2
    return text if len(text) <= _MAX_SHOWN else f"{text[:half]}...(truncated) ...{text[-half:]}"


def _encode(value: Any) -> Any:
    """A value as JSON from which an equal one can be made: what JSON does not have becomes `{kind: content}`."""
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "dtype") and not isinstance(value, str):
        return {"numpy": _describe_array(value)}
    for kinds, encode in _ENCODERS:
        if isinstance(value, kinds):
            return encode(value)
    for method in ("tolist", "item"):  # numbers and arrays that are like numpy's
        if hasattr(value, method):
            return _encode(getattr(value, method)())
    try:
        return {"other": _encode(float(value))}
    except Exception:  # noqa: BLE001 - as above
        return {"other": None}


def _describe_array(value: Any) -> dict[str, Any]:
    """A number or an array of numpy: its elements, and what comparisons with it depend on."""
    return {
        "items": _encode(value.tolist()),
        "shape": list(value.shape),
        "kind": value.dtype.kind,
        "item_bytes": value.dtype.itemsize,
        "is_scalar": any(base.__name__ == "generic" for base in type(value).__mro__),
    }


def _encode_int(value: int) -> Any:
    return int(value) if -_PLAIN_INT < value < _PLAIN_INT else {"int": hex(value)}


def _encode_float(value: float) -> Any:
    value = float(value)
    return value if abs(value) < float("inf") else {"float": repr(value)}


_ENCODERS: list[tuple[Any, collections.abc.Callable[[Any], Any]]] = [
    ((bool, types.NoneType), lambda value: value),
    (int, _encode_int),
    (float, _encode_float),
    (str, "".join),
    (list, lambda value: [_encode(item) for item in value]),
    (tuple, lambda value: {"tuple": [_encode(item) for item in value]}),
    (dict, lambda value: {"dict": [[_encode(key), _encode(item)] for key, item in value.items()]}),
    ((set, frozenset), lambda value: {"set": [_encode(item) for item in value]}),
    (Decimal, lambda value: {"decimal": str(value)}),
    (Fraction, lambda value: {"fraction": [hex(value.numerator), hex(value.denominator)]}),
    (complex, lambda value: {"complex": [_encode_float(value.real), _encode_float(value.imag)]}),
]
