"""Runs reported to trackers: figures arrive, and whatever a tracker does, the run ends in time and says so once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from gymnast.compat.ng_arguments import Fields
from gymnast.compat.ng_trackers import read_trackers
from gymnast.config import load_config, read_environ
from gymnast.errors import UserError
from gymnast.store.paths import RunPaths
from gymnast.tracking.choice import TrackerChoice, parse_trackers
from gymnast.tracking.messages import Finish
from gymnast.tracking.publisher import Publisher, TrackedRun, read_state
from gymnast.tracking.training import TrainingTracker
from tests.helpers.commands import SCRIPTED, Outcome
from tests.helpers.fake_trackers import FakeWandb
from tests.helpers.jsonl import example_rows, read_jsonl, write_jsonl

Run = Callable[..., Outcome]
HANG = "time.sleep(600)"
COMPLETE = Finish("complete", {"scored": 3}, [])


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb(tmp_path / "library")
    fake.write()
    paths = [str(fake.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return fake


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    deadline = time.monotonic() + 60
    while {child.pid for child in psutil.Process().children(recursive=True)} - before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Tracked:
    """A publisher of one run, and what it said."""

    def __init__(self, folder: Path, *choices: str, wait_s: float = 60.0, run_id: str = "run-1") -> None:
        self.paths = RunPaths(folder / "x.jsonl")
        self.said: list[str] = []
        described = TrackedRun(
            "x", run_id, self.paths.logs, self.paths.tracking, self.paths.events, {"settings": {"model": "small"}}
        )
        choice_list = parse_trackers(choices or ["wandb"])
        self.publisher = Publisher(choice_list, lambda: described, self.said.append, wait_s=wait_s)
        self.publisher.start()

    def finish(self, end: Finish = COMPLETE) -> None:
        self.publisher.finish(end)

    @property
    def warnings(self) -> list[str]:
        return [text for text in self.said if text.startswith("warning:")]

    def wait_until(self, check: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while not check():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)


def test_points_and_the_end_arrive_in_order(tmp_path: Path, wandb: FakeWandb) -> None:
    tracked = Tracked(tmp_path)
    for step in range(3):
        tracked.publisher.log(step, {"reward/a": step / 2})
    tracked.finish()
    assert wandb.calls("init")[0]["config"] == {"settings": {"model": "small"}}
    assert [call["step"] for call in wandb.calls("log")] == [0, 1, 2]
    assert wandb.calls("log")[-1]["figures"]["reward/a"] == 1.0
    assert wandb.calls("finish") == [{"what": "finish", "exit_code": 0, "summary": {"state": "complete", "scored": 3}}]
    assert tracked.said == ["note: wandb: http://tracker/fresh"]


def test_a_resume_continues_the_run_of_the_tracker(tmp_path: Path, wandb: FakeWandb) -> None:
    Tracked(tmp_path).finish()
    again = Tracked(tmp_path)
    again.finish()
    assert [call["id"] for call in wandb.calls("init")] == [None, "fresh"]
    assert [call["resume"] for call in wandb.calls("init")] == [None, "allow"]
    assert again.said == ["note: wandb: continues http://tracker/fresh"]


def test_another_run_under_the_same_name_starts_a_new_one(tmp_path: Path, wandb: FakeWandb) -> None:
    Tracked(tmp_path).finish()
    Tracked(tmp_path, run_id="run-2").finish()
    assert [call["id"] for call in wandb.calls("init")] == [None, None]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run_id": 1}', '{"run_id":"run-1","schema_version":99}'])
def test_a_damaged_state_file_starts_over(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x_tracking.json"
    path.write_text(text)
    assert read_state(path, "run-1").trackers == {}


def test_a_library_that_is_missing_is_named_with_the_extra(
    tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb.write(at_import="raise ModuleNotFoundError('No module named wandb', name='wandb')")
    tracked = Tracked(tmp_path)
    tracked.publisher.log(0, {"a": 1.0})
    tracked.finish()
    assert tracked.said == [
        "warning: --track wandb: wandb is not installed; the run is not affected (pip install 'gymnast[wandb]')"
    ]


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("at_import", "raise RuntimeError('broken build')"),
        ("at_import", "import a_module_that_it_needs"),
        ("at_import", "sys.exit(3)"),
        ("in_init", "raise RuntimeError('no API key')"),
        ("in_init", "raise SystemExit(1)"),
        ("in_init", "raise KeyboardInterrupt"),
        ("in_init", "os._exit(7)"),
        ("in_init", "os.kill(os.getpid(), signal.SIGKILL)"),
        ("in_init", "raise ValueError('two\\nlines ' + 'x' * 5000)"),
        ("in_log", "raise ConnectionError('refused')"),
        ("in_log", "raise MemoryError"),
        ("in_log", "os._exit(0)"),
        ("in_finish", "raise TimeoutError('upload')"),
        ("in_finish", "os.abort()"),
    ],
)
def test_a_library_that_fails_is_reported_once_and_costs_nothing(
    tmp_path: Path, wandb: FakeWandb, where: str, code: str
) -> None:
    wandb.write(**{where: code})
    tracked = Tracked(tmp_path)
    for step in range(20):
        tracked.publisher.log(step, {"a": 1.0})
    tracked.finish()
    assert len(tracked.warnings) == 1
    assert "--track wandb" in tracked.warnings[0]
    assert "the run is not affected (" in tracked.warnings[0]
    assert "\n" not in tracked.warnings[0]
    assert len(tracked.warnings[0]) < 1000


def test_a_library_that_fails_at_times_gets_the_other_points(tmp_path: Path, wandb: FakeWandb) -> None:
    wandb.write(in_log="if step == 1: raise ConnectionError('refused')")
    tracked = Tracked(tmp_path)
    for step in range(3):
        tracked.publisher.log(step, {"a": 1.0})
    tracked.finish()
    assert [call["step"] for call in wandb.calls("log")] == [0, 2]
    assert wandb.calls("finish")


@pytest.mark.parametrize("where", ["at_import", "in_init", "in_log", "in_finish"])
def test_a_library_that_hangs_is_stopped_after_the_wait(tmp_path: Path, wandb: FakeWandb, where: str) -> None:
    wandb.write(**{where: HANG})
    tracked = Tracked(tmp_path, wait_s=0.5)
    tracked.publisher.log(0, {"a": 1.0})
    tracked.finish()
    assert [text for text in tracked.warnings if "did not finish within 0.5 s and was stopped" in text]
    assert len(tracked.warnings) == 1


def test_one_that_hangs_does_not_hold_up_the_others(tmp_path: Path, wandb: FakeWandb) -> None:
    wandb.write(in_init=HANG)
    tracked = Tracked(tmp_path, "wandb", "tensorboard", wait_s=2.0)
    tracked.wait_until(lambda: list(tracked.paths.events.glob("**/events.*")))
    tracked.publisher.log(1, {"a": 1.0})
    tracked.finish()
    assert "note: tensorboard" in "".join(tracked.said)
    assert len(tracked.warnings) == 1
    assert b"summary" in next(tracked.paths.events.glob("**/events.*")).read_bytes()


def test_a_slow_library_gets_the_last_point_and_drops_old_ones(tmp_path: Path, wandb: FakeWandb) -> None:
    wandb.write(in_log="time.sleep(2.0 if step == 0 else 0)")
    tracked = Tracked(tmp_path)
    for step in range(3000):
        tracked.publisher.log(step, {"a": 1.0, "text" * 200: 2.0})
    tracked.finish()
    steps = [call["step"] for call in wandb.calls("log")]
    assert steps[-1] == 2999
    assert steps == sorted(steps)
    assert wandb.calls("finish")


def test_a_process_that_is_stopped_by_a_signal_never_blocks_the_run(tmp_path: Path, wandb: FakeWandb) -> None:
    wandb.write(in_init="os.kill(os.getpid(), signal.SIGSTOP)")
    tracked = Tracked(tmp_path, wait_s=0.5)
    for step in range(5000):
        tracked.publisher.log(step, {"name" * 100: 1.0})
    tracked.finish()
    assert "was stopped" in tracked.warnings[0]


def test_what_a_library_prints_goes_to_its_log(
    tmp_path: Path, wandb: FakeWandb, capfd: pytest.CaptureFixture[str]
) -> None:
    wandb.write(in_init="print('hello from the library'); os.write(1, b'raw bytes'); sys.stderr.write('and errors')")
    tracked = Tracked(tmp_path)
    tracked.finish()
    assert capfd.readouterr() == ("", "")
    log = (tracked.paths.logs / "track-wandb.log").read_text()
    assert "hello from the library" in log
    assert "raw bytes" in log


@pytest.mark.parametrize(
    "code",
    [
        "os.fork() or time.sleep(600)",  # what it forks holds its pipes
        "atexit.register(time.sleep, 600)",
        "threading.Thread(target=time.sleep, args=(600,)).start()",  # not a daemon thread
        "__import__('subprocess').Popen(['sleep', '600'])",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    ],
)
def test_what_a_library_leaves_behind_ends_with_the_run(tmp_path: Path, wandb: FakeWandb, code: str) -> None:
    wandb.write(in_init=code)
    tracked = Tracked(tmp_path)
    tracked.publisher.log(5, {"a": 1.0})
    tracked.finish()
    assert tracked.warnings == []
    assert wandb.calls("finish")


def test_the_end_may_come_before_the_start(tmp_path: Path, wandb: FakeWandb) -> None:
    tracked = Tracked(tmp_path)
    tracked.finish()
    assert len(wandb.calls("finish")) == 1


def test_a_run_that_dies_ends_the_run_of_the_tracker(tmp_path: Path, wandb: FakeWandb) -> None:
    tracked = Tracked(tmp_path)
    tracked.publisher.log(1, {"a": 1.0})
    tracked.wait_until(lambda: wandb.calls("log"))
    tracked.publisher._feeds[0].close_input()  # as the kernel does for a process that is killed
    tracked.wait_until(lambda: wandb.calls("finish"))
    assert wandb.calls("finish")[0]["exit_code"] == 1
    tracked.finish()


def test_steps_may_go_back_as_when_failed_rollouts_are_retried(tmp_path: Path, wandb: FakeWandb) -> None:
    tracked = Tracked(tmp_path)
    for step in (5, 3, 6):
        tracked.publisher.log(step, {"a": 1.0})
    tracked.finish()
    assert [call["step"] for call in wandb.calls("log")] == [5, 3, 6]


def test_points_may_come_from_any_thread_and_after_the_end(tmp_path: Path, wandb: FakeWandb) -> None:
    tracked = Tracked(tmp_path)
    threads = [threading.Thread(target=tracked.publisher.log, args=(7, {"a": float(n)})) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracked.finish()
    tracked.publisher.log(8, {"a": 0.0})
    tracked.finish()
    assert len(wandb.calls("log")) == 20


@pytest.mark.parametrize("value", [True, 3, 2.5, np.float32(0.5), np.int64(4)])
def test_figures_may_be_any_kind_of_number(tmp_path: Path, wandb: FakeWandb, value: Any) -> None:
    tracked = Tracked(tmp_path)
    tracked.publisher.log(np.int64(1), {"a": value, "none": None, "text": "x"})  # type: ignore[dict-item, arg-type]
    tracked.finish()
    assert wandb.calls("log")[0]["figures"] == {"a": float(value)}


def test_figures_that_are_not_numbers_do_not_stop_the_rest(tmp_path: Path) -> None:
    tracked = Tracked(tmp_path, "tensorboard")
    tracked.publisher.log(1, {"nan": float("nan"), "infinite": float("inf"), "huge": 1e300, "ok": 1.0, "ü\ud800": 2.0})
    tracked.finish()
    assert tracked.warnings == []


def test_a_folder_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tracked = Tracked(tmp_path, f"tensorboard:{tmp_path}/file")
    tracked.finish()
    assert len(tracked.warnings) == 1
    assert "NotADirectoryError" in tracked.warnings[0]


def test_a_log_folder_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "x_logs").write_text("")
    tracked = Tracked(tmp_path, "tensorboard")
    tracked.publisher.log(1, {"a": 1.0})
    tracked.finish()
    assert len(tracked.warnings) == 1
    assert "the run continues without it" in tracked.warnings[0]


def test_options_name_trackers_with_commas_or_repeated() -> None:
    assert parse_trackers(["wandb, mlflow:exp", "wandb", "tensorboard:a/b:c"]) == (
        TrackerChoice("wandb"),
        TrackerChoice("mlflow", "exp"),
        TrackerChoice("tensorboard", "a/b:c"),
    )
    assert parse_trackers(None) == parse_trackers([",", ""]) == ()
    with pytest.raises(UserError, match="got 'wandbb'") as error:
        parse_trackers(["wandbb"])
    assert "wandb" in (error.value.next or "")


# --- training --------------------------------------------------------------------------------------------------------


def test_a_trainer_reports_its_steps_and_a_restart_continues(tmp_path: Path, wandb: FakeWandb) -> None:
    messages: list[str] = []
    for number in range(2):
        tracker = TrainingTracker(
            "wandb:p", name="grpo", folder=tmp_path / "t", config={"lr": 0.1}, say=messages.append
        )
        with tracker:
            tracker.log(number, {"loss": 0.5, "reward": np.float64(1)})
            tracker.attach([tmp_path / "missing", wandb.folder / "wandb.py"])
    assert [call["id"] for call in wandb.calls("init")] == [None, "fresh"]
    assert [call["step"] for call in wandb.calls("log")] == [0, 1]
    assert wandb.calls("finish")[0]["summary"] == {"state": "complete", "last.loss": 0.5, "last.reward": 1.0}
    assert wandb.calls("artifact")[0]["files"] == ["wandb.py"]
    assert messages == ["note: wandb: http://tracker/fresh", "note: wandb: continues http://tracker/fresh"]


def test_a_trainer_that_raises_ends_its_tracker_run_as_interrupted(tmp_path: Path, wandb: FakeWandb) -> None:
    with pytest.raises(ZeroDivisionError), TrainingTracker("wandb", name="a", folder=tmp_path / "t") as tracker:
        tracker.log(1, {"loss": 1 / 0})
    assert wandb.calls("finish")[0]["summary"]["state"] == "interrupted"


# --- whole runs ------------------------------------------------------------------------------------------------------

MCQA = ("-e", "mcqa", "-c", SCRIPTED, "-o", "x.jsonl", "-i", "tasks.jsonl", "--disable-aggregation")
REPLIES = '++policy_model.responses_api_models.scripted_model.replies=["\\\\boxed{A}"]'


@pytest.fixture
def collect(tmp_path: Path, invoke: Run) -> Run:
    write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa")[:3])
    return lambda *arguments: invoke("gymnast", "collect", *MCQA, REPLIES, *arguments)


def test_a_run_reports_figures_summary_config_and_files(tmp_path: Path, wandb: FakeWandb, collect: Run) -> None:
    outcome = collect("--track", "wandb")
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("tracker/fresh") == 1
    config = wandb.calls("init")[0]["config"]
    assert config["source"]["sha256" if "sha256" in config["source"] else "digest"]
    assert config["code"]
    last = wandb.calls("log")[-1]
    assert last["step"] == 3
    assert last["figures"]["progress/scored"] == 3
    assert last["figures"]["progress/owed"] == 0
    assert last["figures"]["reward_n/mcqa_simple_agent"] == 3
    assert 0 <= last["figures"]["reward/mcqa_simple_agent"] <= 1
    assert last["figures"]["tokens/output"] > 0
    assert wandb.calls("artifact")[0]["files"] == ["report.html", "x_run.json"]
    summary = wandb.calls("finish")[0]["summary"]
    assert summary["scored"] == 3
    assert summary["reward.mcqa_simple_agent.n"] == 3


def test_a_tracker_that_hangs_changes_neither_result_nor_exit_code(
    tmp_path: Path, wandb: FakeWandb, collect: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymnast.tracking.run_tracking.DEFAULT_WAIT_S", 0.5)
    wandb.write(in_init=HANG)
    outcome = collect("--track", "wandb", "--track", "tensorboard")
    assert outcome.code == 0
    assert len(read_jsonl(tmp_path / "x.jsonl")) == 3
    assert outcome.err.count("--track wandb") == 1
    assert outcome.out.index("complete") >= 0


def test_a_resumed_run_continues_its_tracker_run(tmp_path: Path, wandb: FakeWandb, collect: Run) -> None:
    assert collect("--track", "wandb").code == 0
    assert collect("--track", "wandb", "--resume", "--extend", "-n", "2").code == 0
    assert [call["id"] for call in wandb.calls("init")] == [None, "fresh"]
    assert [call["step"] for call in wandb.calls("log")][-1] == 6


def test_an_unknown_tracker_is_refused_before_anything_runs(tmp_path: Path, collect: Run) -> None:
    outcome = collect("--track", "weights")
    assert outcome.code == 2
    assert "expected a tracker (wandb, mlflow, tensorboard, trackio), got 'weights'" in outcome.err
    assert not (tmp_path / "x_run.json").exists()


# --- as NeMo Gym configures them -------------------------------------------------------------------------------------


def test_fields_of_nemo_gym_report_to_its_trackers(tmp_path: Path, wandb: FakeWandb, invoke: Run) -> None:
    """`wandb_project` and the others were accepted and nothing was reported."""
    wandb.write(in_init='record("key", key=os.environ.get("WANDB_API_KEY"))')
    write_jsonl(tmp_path / "tasks.jsonl", example_rows("mcqa")[:3])
    run = ("+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=x.jsonl", REPLIES)
    paths = f"+config_paths=[resources_servers/mcqa/configs/mcqa.yaml,{SCRIPTED}]"
    fields = ("+wandb_project=maths", "+wandb_name=night", "+wandb_api_key=k-123")
    outcome = invoke("ng_collect_rollouts", paths, *run, *fields)
    assert outcome.code == 0, outcome.err
    (init,) = wandb.calls("init")
    assert (init["project"], init["name"]) == ("maths", "night")
    assert wandb.calls("key")[0]["key"] == "k-123"
    assert wandb.calls("log")[-1]["figures"]["progress/scored"] == 3
    assert "k-123" not in outcome.err + outcome.out + (tmp_path / "x_tracking.json").read_text()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"wandb_project": "p"}, []),
        ({"wandb_project": "p", "wandb_name": "n"}, [("wandb:p", "n", {})]),
        ({"mlflow_tracking_uri": "u", "mlflow_experiment_name": "e"}, []),
        (
            {
                "mlflow_tracking_uri": "u",
                "mlflow_experiment_name": "e",
                "mlflow_run_name": "n",
                "mlflow_tracking_token": "t",
            },
            [("mlflow:e", "n", {"MLFLOW_TRACKING_URI": "u", "MLFLOW_TRACKING_TOKEN": "t"})],
        ),
    ],
)
def test_a_tracker_of_nemo_gym_needs_all_of_its_fields(values: Any, expected: Any) -> None:
    choices = read_trackers(Fields(load_config([], environ=read_environ(), initial=values, stub_policy=True)))
    assert [(str(choice), choice.run_name, dict(choice.variables)) for choice in choices] == expected
