"""Reads are repeated while a file system is away, and only then."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from gymnast.errors import UserError
from gymnast.store.outage import read_patiently


class Disk:
    """Answers after some refusals. Its clock advances by the pauses."""

    def __init__(self, refusals: int, number: int = errno.ENOTCONN) -> None:
        self.refusals = refusals
        self.number = number
        self.reads = 0
        self.now = 0.0

    def read(self) -> str:
        self.reads += 1
        if self.reads <= self.refusals:
            raise OSError(self.number, "away", "/shared/run")
        return "content"

    def read_patiently(self, patience_s: float = 60.0) -> str:
        return read_patiently(self.read, patience_s=patience_s, clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
def test_a_disk_that_returns_is_read(number: int) -> None:
    assert Disk(20, number).read_patiently() == "content"


def test_an_outage_behind_an_error_for_people_is_an_outage() -> None:
    disk = Disk(3)

    def read() -> str:
        try:
            return disk.read()
        except OSError as error:
            raise UserError("cannot read the run") from error

    assert read_patiently(read, clock=lambda: disk.now, sleep=disk.sleep) == "content"


def test_a_disk_that_stays_away_is_an_error_with_its_path() -> None:
    with pytest.raises(UserError, match="has been unavailable for 60 s: away") as error:
        Disk(10_000).read_patiently()
    assert error.value.where == "/shared/run"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.ENOSPC])
def test_an_answer_is_not_asked_for_twice(number: int) -> None:
    disk = Disk(1, number)
    with pytest.raises(OSError, match="away"):
        disk.read_patiently()
    assert disk.reads == 1


def raise_user_error() -> str:
    raise UserError("no run here")


def test_other_errors_pass() -> None:
    read: Callable[[], str] = raise_user_error
    with pytest.raises(UserError, match="no run here"):
        read_patiently(read)
