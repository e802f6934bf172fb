"""Skills and debugging pages are true: every command in them is run, every option they mention exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from gymnast.cli.commands import build_app
from gymnast.types.failure import KINDS
from tests.helpers.commands import BIN, DEMO_POLICY, run_command, serving
from tests.helpers.jsonl import example_rows, write_jsonl

ROOT = Path(__file__).parents[2]
SKILLS = sorted((ROOT / "skills").glob("*/SKILL.md"))
DEBUGGING = sorted((ROOT / "docs" / "debugging").glob("*.md"))
REFERENCES = sorted((ROOT / "skills").glob("*/references/*.md"))
PAGES = [*SKILLS, *REFERENCES, *DEBUGGING]

# Commands that look may find something: exit code 1. Anything else has to succeed.
PRELUDE = """set -uo pipefail
trap 'code=$?; case "$BASH_COMMAND" in
  "gymnast doctor "*|"gymnast check "*|"gymnast status "*) [ $code -le 1 ] || exit $code;;
  *) echo "failed: $BASH_COMMAND" >&2; exit 9;;
esac' ERR
"""


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str = "bash") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with tasks and a run in which some rollouts failed, and a policy that answers at a URL."""
    folder = tmp_path_factory.mktemp("skills")
    write_jsonl(folder / "tasks.jsonl", example_rows("mcqa"))
    rejected = {"status": 400, "body": {"error": {"message": "no"}}}
    script = [{"when": "capital of France", "replies": [rejected]}, {"replies": ["\\boxed{B}"]}]
    (folder / "script.json").write_text(json.dumps(script))
    setting = "++policy_model.responses_api_models.scripted_model.script=script.json"
    done = run_command(
        folder,
        "gymnast",
        *("collect", "-e", "mcqa", "--model-type", "scripted_model", setting),
        *("-i", "tasks.jsonl", "-o", "runs/a.jsonl", "-n", "2"),
    )
    assert done.code == 1, done.out + done.err
    assert (folder / "runs" / "a_failures.jsonl").read_text()
    with serving(folder, "-c", DEMO_POLICY) as policy:
        yield folder, f"{policy.url('policy_model')}/v1"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_command_of_a_page_runs(page: Path, workplace: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = workplace
    commands = blocks(page)
    if not commands:
        return
    subprocess.run(["cp", "-r", f"{folder}/.", str(tmp_path)], check=True)
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "POLICY_URL": url}
    script = PRELUDE + "\n".join(commands)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode <= 1, done.stdout + done.stderr  # 1: the last command found something
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_commands_stand_only_where_they_are_run(page: Path) -> None:
    """A fence of another language must not hide a command from the test above."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for language, text in fenced:
        if language != "bash":
            assert not re.search(r"^(?:gymnast|ng_\w+) ", text, flags=re.MULTILINE), text


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_commands_mentioned_in_passing_exist(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for mention in re.findall(r"`(gymnast [^`\n]+)`", prose.replace("\n", " ")):
        _assert_known(mention)


def _assert_known(mention: str) -> None:
    command: Any = typer.main.get_command(build_app())
    words = shlex.split(mention)[1:]
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, f"there is no command: {mention}"
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("-"):
            assert word in known, f"{mention}: there is no option {word}"


@pytest.mark.parametrize("page", SKILLS, ids=shown)
def test_a_skill_has_the_form_that_assistants_read(page: Path) -> None:
    _, front, body = page.read_text().split("---\n", 2)
    facts = yaml.safe_load(front)
    assert set(facts) == {"name", "description"}
    assert facts["name"] == page.parent.name
    assert re.fullmatch(r"[a-z0-9-]{1,64}", facts["name"])
    assert 50 < len(facts["description"]) <= 1024
    assert len(body.splitlines()) < 200
    for reference in page.parent.glob("references/*.md"):
        assert f"references/{reference.name}" in body, f"{reference.name} is not mentioned"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_kinds_of_failures_on_the_page_are_real() -> None:
    text = (ROOT / "docs" / "debugging" / "error-profiles.md").read_text()
    endings = (
        "error|rejected|unreachable|timeout|failed|reply|found|expired|died|overloaded|limited|auth|exited|exceeded"
    )
    mentioned = set(re.findall(rf"`((?:[a-z]+_)+(?:{endings}))`", text))
    assert len(mentioned) > 15
    assert mentioned <= set(KINDS), mentioned - set(KINDS)


def test_three_skills() -> None:
    assert [page.parent.name for page in SKILLS] == ["debug-a-run", "integrate-an-environment", "reward-profiling"]
