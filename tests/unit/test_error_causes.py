"""Errors of remote processes are described by what happened, not by the head of a traceback."""

from __future__ import annotations

import traceback

import pytest

from gymnast.train.error_causes import describe_error

CUDA = "CUDA error: an illegal memory access was encountered"


class EngineDeadError(Exception):
    pass


class Remote(Exception):  # noqa: N818 - stands in for ray.exceptions.RayTaskError
    """Like Ray's: prints as the traceback of another process, and has the pickled cause without its causes."""

    def __init__(self, text: str, cause: BaseException) -> None:
        super().__init__(text)
        self.cause = cause


def raise_deep(depth: int) -> None:
    if depth:
        raise_deep(depth - 1)
    raise RuntimeError(f"{CUDA}\nCompile with TORCH_USE_CUDA_DSA to enable device-side assertions.")


def run_engine(*, chained: bool) -> None:
    try:
        raise_deep(60)
    except RuntimeError as error:
        if not chained:
            raise
        raise EngineDeadError("the engine core died") from error


def remote(*, chained: bool) -> Remote:
    with pytest.raises((RuntimeError, EngineDeadError)) as caught:
        run_engine(chained=chained)
    error = caught.value
    text = "\x1b[36mray::Server.generate()\x1b[39m (pid=1)\n" + "".join(traceback.format_exception(error))
    return Remote(text, type(error)(*error.args))


def test_the_exception_of_a_long_traceback_is_shown() -> None:
    text = describe_error(remote(chained=False))
    assert text.startswith(f"RuntimeError: {CUDA}")
    assert "File" not in text


def test_the_innermost_cause_is_shown_where_pickling_lost_it() -> None:
    text = describe_error(remote(chained=True))
    assert text.startswith(f"RuntimeError: {CUDA}"), "first, because a long text is shortened"
    assert text.endswith("; raised as EngineDeadError: the engine core died")
    assert text.count("EngineDeadError") == 1


def test_a_remote_error_within_another_is_unpacked() -> None:
    inner = remote(chained=True)
    frames = f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    get()\nRayTaskError: {inner}'
    assert CUDA in describe_error(Remote(frames, inner))


def test_causes_in_this_process() -> None:
    outer = ValueError("no answer")
    outer.__cause__ = OSError(5, "Input/output error")
    assert describe_error(outer) == "OSError: [Errno 5] Input/output error; raised as ValueError: no answer"
    assert describe_error(ExceptionGroup("two", [KeyError("x"), KeyError("y")])).startswith("KeyError: 'x'; raised as")
    assert describe_error(TimeoutError()) == "TimeoutError"


def test_a_long_message_keeps_its_end() -> None:
    text = describe_error(RuntimeError("first " + "x" * 9000 + " last"))
    assert text.startswith("RuntimeError: first")
    assert text.endswith("last")
    assert len(text) < 2000


def test_a_chain_that_bites_its_tail_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    assert describe_error(one) == "ValueError: other; raised as ValueError: one"
