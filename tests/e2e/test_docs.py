"""The README is followed word by word; programs of the docs run; generated pages are fresh."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import BIN, DEMO_POLICY, serving
from tests.helpers.jsonl import read_jsonl
from tests.helpers.parts import needs

ROOT = Path(__file__).parents[2]
README_PORT = "http://127.0.0.1:8300"
UNTIL_SERVED = "until gymnast status | grep -q '4 healthy'; do sleep 0.5; done"


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def run_script(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Commands of a page, run as written until the first one that fails."""
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        start_new_session=True,
    )


def test_the_first_run_of_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    first_run = blocks(ROOT / "README.md", "bash")[0]
    (shown,) = blocks(ROOT / "README.md", "text")
    done = run_script(first_run, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(read_jsonl(tmp_path / "out" / "words.jsonl")) == 40
    printed = done.stderr + done.stdout
    for line in shown.splitlines():
        for path in re.findall(r"out/\w+\.\w+", line):
            assert (tmp_path / path).is_file()
        if word := re.match(r"\s*([a-z_]+)", line):  # figures differ between runs
            assert re.search(rf"^\s*{word[1]}", printed, re.MULTILINE), f"no longer printed: {line}"


@pytest.mark.usefixtures("own_registry")
def test_the_five_minute_tutorial(tmp_path: Path) -> None:
    _, start_policy, *rest = blocks(ROOT / "README.md", "bash")
    assert start_policy.rstrip().endswith("&")
    with serving(tmp_path, "-c", DEMO_POLICY) as policy:  # what start_policy does, on a port of its own choice
        script = "\n".join(rest).replace(README_PORT, policy.url("policy_model"))
        assert "\nsleep 3\n" in script
        script = script.replace("\nsleep 3\n", f"\n{UNTIL_SERVED}\n")  # a busy machine takes longer
        done = run_script(script + "\nkill %1; wait", tmp_path)
        assert done.returncode in {0, 143}, done.stdout + done.stderr
    assert len(read_jsonl(tmp_path / "out" / "mcqa.jsonl")) == 20
    assert read_jsonl(tmp_path / "out" / "echo.jsonl")[0]["reward"] == 1.0
    assert "4 healthy, 0 unhealthy" in done.stdout


def test_the_policy_of_the_tutorial_starts_as_written(tmp_path: Path) -> None:
    start_policy = blocks(ROOT / "README.md", "bash")[1].rstrip().rstrip("&")
    words = start_policy.replace("\\\n", " ").replace("=8300", "=0").split()
    process = subprocess.Popen([str(BIN / words[0]), *words[1:]], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "policy_model" in process.stdout.readline()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)


def test_the_page_on_your_own_data_runs_as_written(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "own-data.md"
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    script = "set -euo pipefail\n" + "\n".join(blocks(page, "bash"))
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text, last = page.read_text(), "2 of 2 rows fit math_with_judge"
    assert text[text.index("math_with_judge reads:") : text.index(last)] in done.stdout
    assert [row["reward"] for row in read_jsonl(tmp_path / "out" / "my.jsonl")] in ([0.0, 1.0], [1.0, 0.0])
    assert [row["question"] for row in read_jsonl(tmp_path / "tasks.jsonl")] == ["What is 1+1?", "What is 2+2?"]


def test_the_tutorial_of_a_first_environment_runs_as_written(tmp_path: Path) -> None:
    steps = blocks(ROOT / "docs" / "tutorials" / "first-environment.md", "bash")
    done = run_script("\n".join(steps), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("checks passed") == 2
    tasks = read_jsonl(tmp_path / "tasks.jsonl")
    assert len(read_jsonl(tmp_path / "out" / "letters.jsonl")) == 8 * len(tasks)
    kept = read_jsonl(tmp_path / "train.jsonl")
    assert 0 < len(kept) <= len(tasks)
    assert all("reward_profile" in row for row in kept)


def test_the_environment_of_the_how_to_works(tmp_path: Path) -> None:
    (code,) = blocks(ROOT / "docs" / "how-to" / "environment.md", "python")
    home = tmp_path / "resources_servers" / "shelf"
    (home / "configs").mkdir(parents=True)
    (home / "app.py").write_text(code)
    (home / "configs" / "shelf.yaml").write_text(
        "shelf:\n  resources_servers:\n    shelf: {entrypoint: app.py, domain: other}\n"
    )
    done = subprocess.run(
        [str(BIN / "gymnast"), "config", "validate", "-e", "shelf"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [0, 1])
def test_the_programs_of_the_library_page_run(tmp_path: Path, number: int) -> None:
    code = blocks(ROOT / "docs" / "how-to" / "library.md", "python")[number]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == (20, 8)[number]


@needs("duckdb", "pandas", "polars", "pyarrow")
def test_the_programs_of_the_page_on_data_frames_run(tmp_path: Path) -> None:
    code = "\n".join(blocks(ROOT / "docs" / "how-to" / "data-frames.md", "python"))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "20 of 20 mean reward" in done.stdout


def test_the_program_of_the_training_page_runs(tmp_path: Path) -> None:
    code = blocks(ROOT / "docs" / "how-to" / "train.md", "python")[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 21


def test_the_program_of_the_page_about_streams_runs_and_resumes(tmp_path: Path) -> None:
    code = blocks(ROOT / "docs" / "how-to" / "training-streams.md", "python")[0]
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^stream/delivered [1-9]", done.stdout, flags=re.MULTILINE)
    assert re.search(r"^shop \d+ \[", done.stdout, flags=re.MULTILINE)
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "groups of this stream have already been delivered" in again.stderr


def test_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
