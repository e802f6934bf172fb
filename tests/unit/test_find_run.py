"""A run is named by its output file, its folder or any of its files, the same way in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from gymnast.cli.commands import build_app
from gymnast.errors import NotFoundError, UserError
from gymnast.profile.run_profile import profile_of
from gymnast.store.find_run import RUN_FILE_SUFFIXES, find_run


def make_run(folder: Path, stem: str = "x") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}_run.json").write_text("{}")
    (folder / f"{stem}.jsonl").write_text("")
    return folder / f"{stem}.jsonl"


@pytest.mark.parametrize("name", ["x", *(f"x{suffix}" for suffix in RUN_FILE_SUFFIXES), "."])
def test_a_run_is_named_by_any_of_its_files_its_name_and_its_folder(tmp_path: Path, name: str) -> None:
    output = make_run(tmp_path)
    assert find_run(tmp_path / name).output == output


def test_files_inside_its_chunks_and_logs_name_the_run(tmp_path: Path) -> None:
    output = make_run(tmp_path)
    assert find_run(tmp_path / "x_chunks" / "00001" / "x.jsonl").output == output
    assert find_run(tmp_path / "x_logs" / "worker.log").output == output


@pytest.mark.parametrize("name", ["v1.5.jsonl", "v1.5_run.json", "v1.5"])
def test_names_with_dots_are_names(tmp_path: Path, name: str) -> None:
    output = make_run(tmp_path, "v1.5")
    assert find_run(tmp_path / name).output == output


def test_a_run_named_like_a_file_of_another_is_itself(tmp_path: Path) -> None:
    make_run(tmp_path)
    assert find_run(make_run(tmp_path, "x_failures")).output.name == "x_failures.jsonl"


def test_an_output_that_does_not_end_in_jsonl_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "out_run.json").write_text("{}")
    assert find_run(tmp_path / "out.json").output == tmp_path / "out.json"


def test_a_run_comes_before_a_folder_of_the_same_name(tmp_path: Path) -> None:
    output = make_run(tmp_path, "a")
    make_run(tmp_path / "a", "other")
    assert find_run(tmp_path / "a").output == output


def test_rows_that_another_tool_wrote_count_as_an_output(tmp_path: Path) -> None:
    (tmp_path / "theirs.jsonl").write_text("{}")
    assert find_run(tmp_path / "theirs.jsonl").output == tmp_path / "theirs.jsonl"


def test_a_planned_run_without_records_is_found(tmp_path: Path) -> None:
    (tmp_path / "p_chunks").mkdir()
    (tmp_path / "p_chunks" / "plan.json").write_text("{}")
    assert find_run(tmp_path).output == find_run(tmp_path / "p").output == tmp_path / "p.jsonl"


def test_a_folder_with_several_runs_lists_them(tmp_path: Path) -> None:
    make_run(tmp_path, "a")
    make_run(tmp_path, "b")
    with pytest.raises(UserError, match=r"2 runs(.|\n)*a\.jsonl, .*b\.jsonl"):
        find_run(tmp_path)


def test_a_misspelled_run_suggests_the_right_one(tmp_path: Path) -> None:
    make_run(tmp_path, "baseline")
    with pytest.raises(NotFoundError, match=r"there is no run(.|\n)*did you mean .*baseline\.jsonl"):
        find_run(tmp_path / "basline.jsonl")


def test_other_files_and_empty_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("hello")
    with pytest.raises(UserError, match="not a file of a run"):
        find_run(tmp_path / "README.md")
    with pytest.raises(NotFoundError, match="no run in this folder"):
        find_run(tmp_path)
    with pytest.raises(NotFoundError, match="there is no run"):
        find_run(tmp_path / "nowhere" / "x.jsonl")


def test_a_profile_is_named_by_its_run(tmp_path: Path) -> None:
    output = make_run(tmp_path)
    with pytest.raises(NotFoundError, match=r"no profile(.|\n)*gymnast profile"):
        profile_of(output.with_name("x_run.json"))
    profile = tmp_path / "x_reward_profiling.jsonl"
    profile.write_text("")
    assert profile_of(output) == profile_of(tmp_path) == profile_of(profile) == profile


RUN_COMMANDS = frozenset(
    {
        *("status", "report", "profile", "compare", "doctor", "bundle", "merge", "logs", "cancel", "ctl", "worker"),
        *("reverify", "curriculum", "tokens audit", "tokens export", "train export", "export"),
    }
)


def leaves(commands: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in commands.items():
        children = getattr(command, "commands", None)
        found |= leaves(children, f"{prefix}{name} ") if children else {f"{prefix}{name}": command}
    return found


def test_every_command_about_a_run_takes_it_as_its_first_argument() -> None:
    application: Any = typer.main.get_command(build_app())
    first = {
        name: [param for param in command.params if param.param_type_name == "argument"][:1]
        for name, command in leaves(application.commands).items()
    }
    taking = {name for name, params in first.items() if params and (params[0].metavar or "").startswith("RUN")}
    assert taking == RUN_COMMANDS


def test_an_output_without_a_suffix_is_found_by_its_own_name(tmp_path: Path) -> None:
    for name in ("plain", "plain_run.json", "plain_materialized_inputs.jsonl"):
        (tmp_path / name).write_text("{}\n")
    output = tmp_path / "plain"
    for path in (output, tmp_path / "plain_run.json", tmp_path):
        assert find_run(path).output == output
    (tmp_path / "plain.jsonl").write_text("{}\n")
    assert find_run(tmp_path / "plain_run.json").output == tmp_path / "plain.jsonl"
