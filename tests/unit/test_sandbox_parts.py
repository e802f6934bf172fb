"""The sandbox's pure parts: the filter of system calls, command lines, control groups, verdicts."""

from __future__ import annotations

import errno
import os
import platform
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymnast.config import compose, read_environ
from gymnast.runtime.unsandboxed import without_sandbox
from gymnast.sandbox import Limits, SandboxSettings, cgroups, launch
from gymnast.sandbox.inside.frames import pack_frame
from gymnast.sandbox.interpreter import PACKAGE_DIR, Interpreter, describe_interpreter
from gymnast.sandbox.jail import JailReply
from gymnast.sandbox.results import parse_calls, parse_ending, parse_frames, parse_step
from gymnast.sandbox.seccomp import ABSENT, ALLOW, ERRNO, HIGHEST_KNOWN, KILL, MACHINES, REFUSED, build_filter

PYTHON = Interpreter(
    Path("/usr/bin/python3"), (Path("/usr"), Path("/opt/py")), (Path("/opt/py/site"), Path("/elsewhere"))
)


def decided(code: bytes, number: int, arguments: tuple[int, ...] = (), audit: int = MACHINES["x86_64"].audit) -> int:
    """What the kernel would decide: an interpreter for the few instructions that the filter uses."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, audit, 0, *(value & 0xFFFFFFFFFFFFFFFF for value in padded))
    at, held = 0, 0
    while True:
        kind, if_true, if_false, value = struct.unpack_from("=HBBI", code, at * 8)
        at += 1
        match kind:
            case 0x20:
                held = struct.unpack_from("=I", data, value)[0]
            case 0x15:
                at += if_true if held == value else if_false
            case 0x35:
                at += if_true if held >= value else if_false
            case 0x45:
                at += if_true if held & value else if_false
            case 0x06:
                return int(value)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_refuses_its_list_and_nothing_else(machine: str) -> None:
    code, about = build_filter(machine), MACHINES[machine]
    assert code is not None
    assert len(code) // 8 < 4096
    refused = {numbers[about.column] for numbers in REFUSED.values()} - {None}
    special = {about.clone, about.socket, about.socketpair, about.ioctl, about.fcntl, about.prlimit64}
    special |= {about.setpriority, about.ioprio_set, *about.sched_set}
    special |= {numbers[about.column] for numbers in ABSENT.values()}
    for number in range(HIGHEST_KNOWN + 1):
        if number not in special:
            expected = ERRNO | errno.EPERM if number in refused else ALLOW
            assert decided(code, number, audit=about.audit) == expected, number
    assert decided(code, 435, audit=about.audit) == ERRNO | errno.ENOSYS
    assert decided(code, HIGHEST_KNOWN + 1, audit=about.audit) == ERRNO | errno.ENOSYS
    assert decided(code, 0, audit=0x40000003) == KILL


def test_the_filter_looks_at_arguments() -> None:
    code = build_filter("x86_64")
    assert code is not None
    assert decided(code, 56, (0x10000000 | 17,)) == ERRNO | errno.EPERM
    assert decided(code, 56, (0x01200011,)) == ALLOW, "an ordinary fork"
    assert decided(code, 56, (0x3D0F00,)) == ALLOW, "an ordinary thread"
    assert [decided(code, 41, (family,)) == ALLOW for family in (1, 2, 10, 16, 17, 38, 40)] == [True] * 3 + [False] * 4
    assert [decided(code, 53, (family,)) == ALLOW for family in (1, 2, 10, 16, 30, 40)] == [True] + [False] * 5
    assert [decided(code, 72, (0, command)) == ALLOW for command in (1, 4, 8, 10, 1030)] == [True] * 3 + [False, True]
    for number in (142, 144, 203, 314):
        assert [decided(code, number, (pid,)) == ALLOW for pid in (0, 1, 7)] == [True, False, True]
    for number, this_process in ((141, 0), (251, 1)):
        allowed = [decided(code, number, (which, pid)) == ALLOW for which in (0, 1, 2) for pid in (0, 1, 7)]
        assert allowed == [which == this_process and pid != 1 for which in (0, 1, 2) for pid in (0, 1, 7)]
    assert decided(code, 222) == ERRNO | errno.ENOSYS
    assert decided(code, 16, (0, 0x5412)) == ERRNO | errno.EPERM
    assert decided(code, 16, (0, 0x5401)) == ALLOW
    assert decided(code, 302, (0, 7)) == ALLOW
    assert decided(code, 302, (1, 7)) == ERRNO | errno.EPERM
    assert decided(code, 0x40000000 + 39) == KILL


@given(number=st.integers(0, 2**32 - 1), arguments=st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_the_filter_decides_every_call(number: int, arguments: list[int]) -> None:
    code = build_filter("x86_64")
    assert code is not None
    assert decided(code, number, tuple(arguments)) in {ALLOW, KILL} | {ERRNO | n for n in (1, 38, 97)}


def test_there_is_no_filter_for_machines_without_a_table() -> None:
    assert build_filter("riscv64") is None


def test_bubblewrap_shows_what_is_needed_and_hides_the_rest() -> None:
    words = launch.bubblewrap("bwrap", PYTHON, visible_at={Path("/opt/py"): Path("/mnt/0")}).argv
    for flag in ("user", "pid", "net", "ipc", "uts"):
        assert f"--unshare-{flag}" in words
    assert {"--disable-userns", "--new-session", "--die-with-parent", "--clearenv", "--as-pid-1"} <= set(words)
    text = " ".join(words)
    assert "--uid 65534 --gid 65534" in text
    assert "--cap-drop ALL" in text
    assert "--ro-bind /mnt/0 /opt/py" in text
    assert "--tmpfs /opt/py/site --remount-ro /opt/py/site" in text
    assert "/elsewhere" not in text, "what is not shown needs no hiding"
    assert not [word for word in words if word.startswith(("/home", "/root", "/etc/passwd"))]
    assert "--bind" not in words
    assert "--dev-bind" not in words


def test_root_starts_jails_as_another_user() -> None:
    jail = launch.Launch(("bwrap", "x"), nest=True)
    plain = launch.run_as_nobody(jail, {}).argv
    assert plain == ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "bwrap", "x")
    mounted = launch.run_as_nobody(jail, {Path("/srv/p y"): Path("/mnt/0")}).argv
    assert mounted[:4] == ("unshare", "--mount", "sh", "-c")
    assert "mount --bind '/srv/p y' /mnt/0" in mounted[4]
    assert mounted[-6:] == plain
    grouped = launch.enter_cgroups(jail, [Path("/sys/fs/cgroup/a b/cgroup.procs")]).argv
    assert grouped[2] == "echo $$ > '/sys/fs/cgroup/a b/cgroup.procs'; exec \"$@\""
    assert launch.enter_cgroups(jail, []) is jail


def test_a_container_has_the_same_walls_in_its_own_words() -> None:
    jail = launch.container("podman", "python:3", "name", Limits(memory_mb=100, tmp_mb=10, processes=5))
    text = " ".join(jail.argv)
    for part in (
        "--network none",
        "--read-only",
        "--user 65534:65534",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--memory 174m",
        "--pids-limit 13",
        "--ulimit core=0:0",
        "--tmpfs /tmp:rw,nosuid,nodev,size=10m",
        "--entrypoint python3 python:3 -s -c",
    ):
        assert part in text
    assert "--volume" not in text
    assert "--privileged" not in text
    assert jail.stop == ("podman", "rm", "--force", "name")
    assert not jail.nest
    assert jail.allows(Limits(memory_mb=100, tmp_mb=10, processes=5))
    assert not jail.allows(Limits(memory_mb=101, tmp_mb=10, processes=5))


def test_an_apptainer_instance_shares_nothing() -> None:
    words = launch.apptainer("apptainer", "image.sif").argv
    assert {"--containall", "--cleanenv", "--no-home", "--no-privs", "--net", "--pid", "--ipc"} <= set(words)
    assert words[words.index("--network") + 1] == "none"
    assert words[-4:-1] == ("python3", "-s", "-c")
    assert "image.sif" in words


def test_without_walls_the_environment_is_still_empty() -> None:
    jail = launch.bare(PYTHON)
    assert jail.argv[:2] == ("env", "--ignore-environment")
    assert not jail.is_isolated


def test_our_own_files_are_hidden_wherever_they_are(tmp_path: Path) -> None:
    settings = SandboxSettings(hide=(Path("/usr/share"),))
    found = describe_interpreter(
        Path("/usr/bin/python3"), [Path("/usr"), Path("/usr/lib")], [Path("/usr/lib/nowhere")], settings
    )
    assert found.readable == (Path("/usr"),)
    assert PACKAGE_DIR in found.hidden
    assert Path("/usr/share") in found.hidden
    assert Path("/usr/lib/nowhere") not in found.hidden


def test_groups_of_version_1_are_made_where_they_can_be(tmp_path: Path) -> None:
    for folder in ("memory/mine", "pids", "cpu,cpuacct"):
        (tmp_path / folder).mkdir(parents=True)
    own = "4:memory:/mine\n8:pids:/\n1:cpu,cpuacct:/\n5:cpuset:/\n0::/\n"
    folders = cgroups.find_cgroup_parents("auto", root=tmp_path, own=own)
    assert folders == (tmp_path / "memory" / "mine", tmp_path / "pids", tmp_path / "cpu,cpuacct")
    group = cgroups.create_cgroup(folders, "a")
    assert group is not None
    assert [path.parent.name for path in group.procs] == [f"gymnast-jail-{os.getpid()}-a"] * 3
    group.set_limits(Limits(memory_mb=100, tmp_mb=10, processes=7))
    assert (group.folders[0] / "memory.limit_in_bytes").read_text() == str(174 << 20)
    assert (group.folders[1] / "pids.max").read_text() == "15"
    (group.folders[0] / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert group.oom_kills() == 3
    assert group.cpu_s() is None
    (group.folders[2] / "cpuacct.usage").write_text("2500000000\n")
    assert group.cpu_s() == 2.5
    (group.folders[0] / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1000000\n")
    assert group.cpu_s() == 1.5


def test_groups_of_version_2_need_a_delegated_controller(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert cgroups.find_cgroup_parents("auto", root=tmp_path, own="0::/mine\n") == ()
    (tmp_path / "mine" / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert cgroups.find_cgroup_parents("auto", root=tmp_path, own="0::/mine\n") == (tmp_path / "mine",)
    assert cgroups.find_cgroup_parents("off", root=tmp_path, own="0::/mine\n") == ()
    assert cgroups.find_cgroup_parents(tmp_path, root=tmp_path) == (tmp_path,)
    assert cgroups.create_cgroup((tmp_path / "absent",), "a") is None


def test_groups_of_owners_that_died_are_swept(tmp_path: Path) -> None:
    ours, theirs = tmp_path / f"gymnast-jail-{os.getpid()}-a", tmp_path / "gymnast-jail-4194305-b"
    ours.mkdir()
    theirs.mkdir()
    cgroups.remove_stale_cgroups((tmp_path,))
    assert ours.exists()
    assert not theirs.exists()


@pytest.mark.parametrize(
    ("header", "stderr", "kills", "expected"),
    [
        ({"reason": "ended", "status": 0}, b"", 0, ("exited", 0)),
        ({"reason": "ended", "status": 3 << 8}, b"", 0, ("exited", 3)),
        ({"reason": "ended", "status": 9}, b"", 0, ("killed", None)),
        ({"reason": "ended", "status": 9}, b"", 1, ("memory", None)),
        ({"reason": "ended", "status": 11}, b"", 1, ("killed", None)),
        ({"reason": "ended", "status": 24}, b"", 0, ("timeout", None)),
        ({"reason": "ended", "status": 1 << 8}, b"Traceback\nMemoryError\n", 0, ("memory", None)),
        ({"reason": "ended", "status": 0}, b"MemoryError\n", 0, ("exited", 0)),
        ({"reason": "wall"}, b"", 0, ("timeout", None)),
        ({"reason": "cpu"}, b"", 0, ("timeout", None)),
        ({"reason": "memory"}, b"", 0, ("memory", None)),
        ({"reason": "output"}, b"", 0, ("output", None)),
        ({"reason": "processes"}, b"", 0, ("killed", None)),
    ],
)
def test_how_a_program_ended(
    header: dict[str, object], stderr: bytes, kills: int, expected: tuple[str, int | None]
) -> None:
    assert parse_ending(JailReply(dict(header), b"", stderr, b"", kills)) == expected


@given(said=st.binary(max_size=200), count=st.integers(0, 4))
def test_whatever_a_program_says_there_is_one_result_for_each_call(said: bytes, count: int) -> None:
    results = parse_calls(JailReply({"reason": "ended", "status": 0}, b"", b"", said), count)
    assert len(results) == count


@given(values=st.lists(st.integers(), max_size=5), rest=st.binary(max_size=20))
def test_answers_before_the_garbage_count(values: list[int], rest: bytes) -> None:
    said = b"".join(pack_frame({"value": value}) for value in values) + rest[:7]
    assert [header for header, _ in parse_frames(said)] == [{"value": value} for value in values]


def test_a_step_whose_interpreter_talks_nonsense_failed() -> None:
    found = parse_step(JailReply({"stdout": 0}, b"", b"", b"\0\0\0\1\0\0\0\0x"), 0.1)
    assert (found.ending, found.exit_code, found.result) == ("exited", 1, None)


def test_this_machine_has_a_filter() -> None:
    if platform.machine() in MACHINES:
        assert build_filter(platform.machine())


def test_no_sandbox_on_the_command_line_concerns_what_runs_programs() -> None:
    config = compose(read_environ(), environments=["code_gen", "mcqa"], model_type="scripted_model", stub_policy=True)
    unsafe, names = without_sandbox(config)
    assert names == ["code_gen"]
    told = unsafe.instance("code_gen").settings["sandbox"]
    assert (told["driver"], told["unsafe_no_sandbox"]) == ("none", True)
    assert told["limits"] == config.instance("code_gen").settings["sandbox"]["limits"]
    assert unsafe.instance("mcqa") == config.instance("mcqa")
